"""Answers of web applications to failed calls of their handlers, and to ``Abort``.

Starlette answers unhandled exceptions with 500 before middlewares see them, so the answer has to be
an exception handler of the application, unless it has one already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args

from pyserve.errors import Abort
from pyserve.replica.refusals import CallFailure, refusal_of

if TYPE_CHECKING:
    from pyserve.replica.asgi.scope import Application

# Of WebSockets: RFC 6455, 7.4.1 and IANA's registry. A reason has so many bytes, 5.5.1.
_INTERNAL_ERROR, _TRY_AGAIN_LATER = 1011, 1013
_REASON_BYTES_MAX = 123


def answer_refusals(app: Application) -> None:
    """Add these answers to a Starlette application and those mounted in it.

    Handlers that it has for these errors, or for those below them, stay. Others are left alone.
    """
    handlers = getattr(app, "exception_handlers", None)
    if isinstance(handlers, dict) and hasattr(app, "add_exception_handler"):
        handler = _handler()
        for kind in (*get_args(CallFailure), Abort):
            handlers.setdefault(kind, handler)
    for route in getattr(app, "routes", ()):
        mounted = getattr(route, "app", None)
        if mounted is not None and mounted is not app:
            answer_refusals(mounted)


def _handler() -> Callable[[Any, Exception], Awaitable[object]]:
    from starlette.responses import Response
    from starlette.websockets import WebSocket

    async def answer(connection: Any, error: Exception) -> object:
        refusal = refusal_of(error)
        assert refusal is not None, "invariant: it handles no other errors"
        if isinstance(connection, WebSocket):
            is_final = isinstance(error, Abort) and refusal.status != HTTPStatus.SERVICE_UNAVAILABLE
            reason = refusal.text.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
            await connection.close(_INTERNAL_ERROR if is_final else _TRY_AGAIN_LATER, reason)
            return None
        response = Response(refusal.body, refusal.status)
        response.raw_headers.extend(refusal.headers())
        return response

    return answer
