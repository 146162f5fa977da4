"""What engines of other projects read from the environment, and from a replica's."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyserve.errors import OptionError


def api_key(variable: str) -> str:
    """Return the key that a variable has.

    Raises:
        OptionError: It has none.
    """
    key = os.environ.get(variable)
    if not key:
        raise OptionError(
            f"the environment variable {variable} has no API key; set it where replicas run, by "
            f"the deployment's env_vars for example"
        )
    return key


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with changes, for a server that it starts."""
    return {**os.environ, **changes}


def let_threads_sleep() -> None:
    """Have threads of OpenMP sleep where they have nothing to do, unless the user says otherwise.

    It has to be called before a library with OpenMP is loaded, which reads the variable then.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
