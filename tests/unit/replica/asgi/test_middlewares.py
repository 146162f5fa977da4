"""Middlewares around an application: where they come from, and in which order they stand."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.middleware import Middleware

from pyserve.errors import ImportPathError, UsageError
from pyserve.replica.asgi.middlewares import read_middlewares, wrap

NOT_CALLABLE = [1]
_HERE = __name__


class Noted:
    """Notes its name, then calls what is behind it."""

    def __init__(self, app: Any, name: str, *, log: list[str]) -> None:
        self._app, self._name, self._log = app, name, log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._log.append(self._name)
        await self._app(scope, receive, send)


def nothing() -> list[Middleware]:
    return []


def wrong() -> list[object]:
    return [Noted]


async def test_the_first_one_sees_a_request_first() -> None:
    log: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        log.append("app")

    middlewares = [Middleware(Noted, name, log=log) for name in ("outer", "inner")]
    await wrap(app, middlewares)({"type": "http"}, None, None)  # type: ignore[arg-type]
    assert ["outer", "inner", "app"] == log
    assert app is wrap(app, [])


def test_they_come_from_a_function() -> None:
    assert [] == read_middlewares(f"{_HERE}:nothing")


@pytest.mark.parametrize(
    ("attribute", "error", "says"),
    [
        ("NOT_CALLABLE", UsageError, "cannot be called; name a function"),
        ("wrong", UsageError, "return a list of starlette.middleware.Middleware"),
        ("missing", ImportPathError, "missing"),
    ],
)
def test_what_is_none_is_refused_with_what_to_return(
    attribute: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        read_middlewares(f"{_HERE}:{attribute}")
