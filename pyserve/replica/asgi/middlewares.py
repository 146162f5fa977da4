"""Middlewares that the operator of a mesh puts before the plain HTTP of its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyserve.api.code import import_attribute
from pyserve.errors import ImportPathError, UsageError

if TYPE_CHECKING:
    from starlette.middleware import Middleware

    from pyserve.replica.asgi.scope import Application

_VARIABLE = "PYSERVE_HTTP_MIDDLEWARES"


def read_middlewares(path: str) -> Sequence[Middleware]:
    """Call the function that an import path names; return its middlewares, the outermost first.

    Raises:
        ImportPathError: There is no such function.
        UsageError: It is no function, or returned something else than a list of ``Middleware``.
        Exception: Whatever its module or itself raises.
    """
    from starlette.middleware import Middleware

    try:
        function = import_attribute(path)
    except ImportPathError as error:
        raise ImportPathError(f"{_VARIABLE}={path}: {error}") from error
    if not callable(function):
        raise UsageError(
            f"{_VARIABLE}={path}: {function!r} cannot be called; name a function without "
            f"parameters that returns a list of starlette.middleware.Middleware"
        )
    found = function()
    if not isinstance(found, list | tuple) or not all(
        isinstance(each, Middleware) for each in found
    ):
        raise UsageError(
            f"{_VARIABLE}={path} returned {found!r}; return a list of "
            f"starlette.middleware.Middleware, such as [Middleware(GZipMiddleware)]"
        )
    return found


def wrap(app: Application, middlewares: Sequence[Middleware]) -> Application:
    """Return the application behind its middlewares, the first of which sees a request first."""
    for factory, arguments, options in reversed([tuple(each) for each in middlewares]):
        app = factory(app, *arguments, **options)
    return app
