"""Makes the answer from a handler's result."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from pyserve.aio._tasks import steps_on_threads
from pyserve.replica import iterators
from pyserve.replica.asgi.http import (
    BODILESS,
    LEAVE_TIMEOUT_S,
    HttpExchange,
    content_length,
)
from pyserve.replica.asgi.scope import http_scope
from pyserve.replica.http.streams import send_stream, write_for_anyone
from pyserve.replica.http.values import BYTES, JSON, TEXT, to_json

if TYPE_CHECKING:
    from starlette.responses import Response, StreamingResponse

    from pyserve.aio import HttpCall

# As Ray Serve answers for a handler that returns nothing.
_NOTHING = ((b"content-type", b"text/plain"),)


def answer(http: HttpCall, result: Any) -> Coroutine[Any, Any, None] | None:
    """Answer with what a handler returned.

    Returns:
        The rest of the work, to be awaited; ``None`` when everything is said.

    Raises:
        TypeError: It cannot be sent.
    """
    kind = type(result)
    if kind is dict or kind is list:
        http.respond(200, JSON, to_json(result))
    elif kind is str:
        http.respond(200, TEXT, result.encode())
    elif kind is bytes:
        http.respond(200, BYTES, result)
    elif result is None:
        http.respond(200, _NOTHING, b"")
    else:
        return _answer_other(http, result)
    return None


def _answer_other(http: HttpCall, result: Any) -> Coroutine[Any, Any, None] | None:
    # A handler that returns a response has imported the module.
    starlette = sys.modules.get("starlette.responses")
    if starlette is not None and isinstance(result, starlette.Response):
        return _send_response(http, result)
    if isinstance(result, str):
        http.respond(200, TEXT, result.encode())
    elif isinstance(result, bytearray | memoryview):
        http.respond(200, BYTES, bytes(result))
    elif isinstance(result, Awaitable):
        return _answer_later(http, result)
    elif hasattr(result, "__aiter__"):
        return send_stream(http, aiter(result))
    elif isinstance(result, Iterator):
        return send_stream(http, steps_on_threads(http, result))
    else:
        http.respond(200, JSON, to_json(result))
    return None


async def _answer_later(http: HttpCall, result: Awaitable[Any]) -> None:
    rest = answer(http, await result)
    if rest is not None:
        await rest


async def _send_response(http: HttpCall, response: Response) -> None:
    from starlette.responses import Response, StreamingResponse

    run = type(response).__call__
    if run is StreamingResponse.__call__ and response.background is None:
        await _send_streaming(http, response)  # type: ignore[arg-type]  # as asked just now
    elif run is Response.__call__:
        http.respond(response.status_code, response.raw_headers, bytes(response.body))
        if response.background is not None:
            await response.background()
    else:  # Files, and what libraries derive: it speaks ASGI, and runs its own background task.
        http.allow_leave(LEAVE_TIMEOUT_S)
        scope = http_scope(http, {})
        exchange = HttpExchange(http, scope["method"])
        await response(scope, exchange.receive, exchange.send)


async def _send_streaming(http: HttpCall, response: StreamingResponse) -> None:
    """Send head and pieces of a response, at its client's pace.

    Raises:
        RuntimeError: They do not have the length that the head announces.
    """
    left = content_length(response.raw_headers)
    if http.head.method == "HEAD" or response.status_code in BODILESS:
        left = None
    http.start(response.status_code, response.raw_headers)
    try:
        async for piece in response.body_iterator:
            body = piece.encode(response.charset) if isinstance(piece, str) else bytes(piece)
            if left is not None:
                left = _without(left, len(body))
            await write_for_anyone(http, body)
        if left:
            raise RuntimeError(f"the answer's body is {left} bytes shorter than its content-length")
        http.end()
    finally:
        await iterators.close(response.body_iterator)  # Starlette does not.


def _without(left: int, size_bytes: int) -> int:
    if size_bytes > left:
        raise RuntimeError("the answer's body is longer than its content-length")
    return left - size_bytes
