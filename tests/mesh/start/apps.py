"""What shows how its process was prepared when its module was imported."""

from __future__ import annotations

import os

import pyserve

_FOUND = os.environ.get("COLOUR", "")


@pyserve.deployment
class Prepared:
    """Returns what its module has found in the environment."""

    async def __call__(self) -> str:
        return _FOUND


blue = Prepared.options(env_vars={"COLOUR": "blue"}).bind()
