"""A deployment whose time goes into one function."""

from __future__ import annotations

import time
from pathlib import Path

from starlette.requests import Request

import pyserve


def add_up(until: str) -> int:
    """Count until there is a file of that name, for half a minute at most."""
    end, total = time.monotonic() + 30, 0
    while not Path(until).exists() and time.monotonic() < end:
        total += sum(range(1000))
    return total


@pyserve.deployment
class Busy:
    def __call__(self, request: Request) -> int:
        return add_up(request.query_params["until"])


app = Busy.bind()
