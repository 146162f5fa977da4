"""Makes the answer from a handler's result, its stream, or its exception."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from pyserve.aio import ClientDisconnected
from pyserve.aio.internal import LATE_DETAILS, is_late, note_failure, steps_on_threads
from pyserve.api.files import File
from pyserve.bridge import end_if_forked
from pyserve.errors import Abort, BatchError, ModelNotFound
from pyserve.observe.failures import exc_info_of, failure_logger, text_of
from pyserve.replica import iterators
from pyserve.replica.asgi.http import (
    BODILESS,
    LEAVE_TIMEOUT_S,
    HttpExchange,
    content_length,
)
from pyserve.replica.asgi.scope import http_scope
from pyserve.replica.http.errors import InvalidBody, InvalidForm, InvalidJson
from pyserve.replica.http.files import send_file
from pyserve.replica.http.values import BYTES, JSON, JSON_LINES, TEXT, to_json
from pyserve.replica.refusals import refusal_of
from pyserve.stepping.endings import NotStarted

if TYPE_CHECKING:
    from starlette.responses import Response, StreamingResponse

    from pyserve.aio import HttpCall, HttpHeaders
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
    if isinstance(result, File):
        return send_file(http, result)
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


# Answers that come in pieces: what a generator yields, sent as it is made.

_END = object()


async def send_stream(http: HttpCall, items: AsyncIterator[Any]) -> None:
    """Answer with a body of all items, and close ``items`` in the end.

    Texts are sent in UTF-8, bytes as they are, and everything else as lines of JSON; the first
    item chooses the content-type. The head is sent with it, so what is raised before can still
    choose the status; what is raised later breaks the answer off. Items are made at the
    client's pace.
    """
    try:
        async for item in items:
            piece, headers = _encode(item)
            if not http.started:
                http.start(200, headers)
            await write_for_anyone(http, piece)
        if http.started:
            http.end()
        else:
            http.respond(200, TEXT, b"")
    finally:
        await iterators.close(items)


async def write_for_anyone(http: HttpCall, piece: bytes) -> None:
    """Write a piece, or throw it away when the client has gone.

    One that wished its request finished without it gets that; the others' tasks are cancelled.
    """
    with contextlib.suppress(ClientDisconnected):
        await http.write(piece)


async def limited(items: AsyncIterator[Any], timeout_s: float) -> AsyncIterator[Any]:
    """Pass items on for ``timeout_s`` seconds, not counting those that the client takes.

    Raises:
        Abort: With DEADLINE_EXCEEDED, when the time is over.
    """
    left_s = timeout_s
    loop = asyncio.get_running_loop()
    try:
        while True:
            begin = loop.time()
            async with within(left_s, timeout_s):
                item = await anext(items, _END)
            left_s -= loop.time() - begin
            if item is _END:
                return
            yield item
    finally:
        await iterators.close(items)


@contextlib.asynccontextmanager
async def within(left_s: float, timeout_s: float) -> AsyncIterator[None]:
    """Limit the time of a block.

    Args:
        left_s: What is left of it.
        timeout_s: All of it, for the message.

    Raises:
        Abort: With DEADLINE_EXCEEDED, when it is over.
    """
    try:
        async with asyncio.timeout(left_s) as limit:
            yield
    except TimeoutError:
        if not limit.expired():  # It is the user's own.
            raise
        text = f"took longer than {timeout_s:g} s"
        raise Abort(StatusCode.DEADLINE_EXCEEDED, text) from None


def _encode(item: Any) -> tuple[bytes, HttpHeaders]:
    if isinstance(item, str):
        return item.encode(), TEXT
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item), BYTES
    return to_json(item) + b"\n", JSON_LINES


# Makes the answer from a handler's exception; the counterpart of `plain.failures` for HTTP.

_LOGGER = failure_logger(__name__)
_NEUTRAL_DETAILS = "The deployment raised an exception; its log has the traceback."
_DETAILS_MAX = 500
# Word for word what Ray Serve and Starlette answer; ours goes into the header.
_INTERNAL = b"Internal Server Error"
_ERROR = b"x-pyserve-error"


def answer_failure(http: HttpCall, error: Exception) -> None:
    """Answer a request whose handler raised; log unexpected exceptions.

    An answer that has begun is broken off.
    """
    end_if_forked(error)
    if http.cancel_reason is not None or isinstance(error, ClientDisconnected):
        # Often because the client has left, so the answer is not needed.
        _LOGGER.debug("%s raised after its client left", _path(http), exc_info=exc_info_of(error))
    elif http.started or not _may_answer(http, error):
        _answer_unexpected(http, error)


def _may_answer(http: HttpCall, error: Exception) -> bool:
    """As ``_answer_expected``; what an error says may be nothing that can be sent."""
    try:
        return _answer_expected(http, error)
    except (TypeError, ValueError) as wrong:  # UnicodeError is one.
        _LOGGER.error(
            "%s in %s cannot be answered with: %s", type(error).__name__, _path(http), wrong
        )
        return False


def _answer_expected(http: HttpCall, error: Exception) -> bool:
    """Answer with the error's own status and text, if it has them."""
    if isinstance(error, NotStarted):
        http.refuse()
    elif isinstance(error, Abort) and error.http_status is not None:
        refusal = refusal_of(error)
        assert refusal is not None, "an Abort has one"
        http.respond(refusal.status, refusal.headers(), refusal.body)
    elif isinstance(error, Abort):
        http.fail(error.code, error.details, error.trailing_metadata)
    elif isinstance(error, ModelNotFound):
        http.fail(error.code, str(error))
    elif isinstance(error, InvalidJson):
        text = (
            f"The body is not JSON: {error}" if error.doc else f"The body is not JSON: {error.msg}"
        )
        http.respond(400, JSON, to_json({"detail": text}))
    elif isinstance(error, InvalidForm):
        http.respond(400, JSON, to_json({"detail": str(error)}))
    elif isinstance(error, InvalidBody):
        http.respond(422, JSON, to_json({"detail": error.errors}))
    elif isinstance(error, BatchError) and error.code is StatusCode.INVALID_ARGUMENT:
        http.respond(400, JSON, to_json({"detail": str(error)}))
    elif (starlette := sys.modules.get("starlette.exceptions")) is not None and isinstance(
        error, starlette.HTTPException
    ):
        _answer_http_exception(http, error)
    else:
        return False
    return True


def _answer_http_exception(http: HttpCall, error: Any) -> None:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in (error.headers or {}).items()
    ]
    if error.status_code in BODILESS:
        http.respond(error.status_code, headers, b"")
    elif type(error).__module__.startswith("starlette.") and isinstance(error.detail, str):
        http.respond(error.status_code, [*_type(TEXT, headers), *headers], error.detail.encode())
    else:  # FastAPI's, whose detail is any JSON.
        detail = to_json({"detail": error.detail})
        http.respond(error.status_code, [*_type(JSON, headers), *headers], detail)


def _type(default: HttpHeaders, headers: HttpHeaders) -> HttpHeaders:
    """Return the default of a content-type, unless the exception has one."""
    return () if any(name == b"content-type" for name, _ in headers) else default


def _answer_unexpected(http: HttpCall, error: Exception) -> None:
    details = note_unexpected(http, error)
    if details is LATE_DETAILS:
        http.fail(StatusCode.DEADLINE_EXCEEDED, details)
        return
    refusal = refusal_of(error)
    if http.started:
        http.fail(StatusCode.INTERNAL, details)
    elif refusal is None:
        http.respond(500, [*TEXT, (_ERROR, _as_header(details))], _INTERNAL)
    else:
        text = refusal.body if details is _NEUTRAL_DETAILS else f"{details}\n".encode()
        http.respond(refusal.status, refusal.headers(), text)


def note_unexpected(http: HttpCall, error: Exception) -> str:
    """Note in span and log that a handler has failed; return what its client is told.

    That is ``LATE_DETAILS`` where the time was over, a neutral text in production, and the
    exception in development.
    """
    note_failure(http.call, error)
    if is_late(error, http.time_remaining()):
        _LOGGER.debug("%s ran out of time", _path(http), exc_info=exc_info_of(error))
        return LATE_DETAILS
    _LOGGER.error(
        "unexpected %s in %s", type(error).__name__, _path(http), exc_info=exc_info_of(error)
    )
    if http.kit.settings.development:
        return f"{type(error).__name__}: {text_of(error)}"[:_DETAILS_MAX]
    return _NEUTRAL_DETAILS


def _as_header(text: str) -> bytes:
    """Return a text as a header may have it: in one line, of ASCII."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return line.strip().encode("ascii", "backslashreplace")[:_DETAILS_MAX]


def _path(http: HttpCall) -> str:
    return f"{http.head.method} {http.head.target.partition(b'?')[0].decode('latin-1')}"
