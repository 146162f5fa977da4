"""A deployment whose time goes into one function."""

from __future__ import annotations

import time

from starlette.requests import Request

import pyserve


def add_up(seconds: float) -> int:
    """Count for so long."""
    until, total = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        total += sum(range(1000))
    return total


@pyserve.deployment
class Busy:
    def __call__(self, request: Request) -> int:
        return add_up(float(request.query_params.get("for", 0)))


app = Busy.bind()
