"""Compiles ``__call__`` of a deployment into the handler of its plain HTTP requests.

A stream of values is answered by server-sent events, one for each, where the client takes them.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pyserve.aio import HttpFunction
from pyserve.aio.internal import on_thread, steps_on_threads
from pyserve.errors import PyserveError
from pyserve.replica import iterators
from pyserve.replica.http.answers import (
    answer,
    answer_failure,
    limited,
    note_unexpected,
    send_stream,
    within,
    write_for_anyone,
)
from pyserve.replica.http.arguments import Arguments, arguments_of, whole_body
from pyserve.replica.http.values import TEXT, to_json
from pyserve.replica.plain.methods import Kind, PlainMethod

if TYPE_CHECKING:
    from pyserve.aio import HttpCall, HttpHandler
    from pyserve.replica.http.arguments import Given


# Does all but failures: raises what the handler raises.
_Run = Callable[["HttpCall", "Given"], Awaitable[None]]

_BATCHED = frozenset({Kind.BATCHED, Kind.BATCHED_GENERATOR})


def plain_handler(method: PlainMethod) -> HttpHandler:
    """Return the handler that answers plain HTTP requests with a method.

    Args:
        method: ``__call__``, as ``find_methods`` has found it.
    """
    if method.kind is Kind.STEPPED:
        return _guarded(_stepped(method.function), whole_body(method.written))
    arguments = arguments_of(method.written, batched=method.kind in _BATCHED)
    if method.kind in {Kind.ASYNC, Kind.BATCHED} and method.options.timeout_s is None:
        return _awaited(method, arguments)
    return _guarded(_runner(method), arguments)


def _awaited(method: PlainMethod, arguments: Arguments) -> HttpHandler:
    """Return the handler of an ``async def``: with one argument the hot path."""
    function = method.function
    if arguments.only is None:
        return _guarded(_called(function), arguments)
    prepare = _prepare(needs_body=arguments.needs_body)
    return HttpFunction(function, prepare, arguments.only, answer, answer_failure)


def _called(function: Callable[..., Any]) -> _Run:
    async def run(http: HttpCall, given: Given) -> None:
        args, kwargs = given
        rest = answer(http, await function(*args, **kwargs))
        if rest is not None:
            await rest

    return run


def _stepped(function: Callable[..., Any]) -> _Run:
    """Answer with each value as an event, where the client asks for events, else with the last."""

    async def run(http: HttpCall, given: Given) -> None:
        args, kwargs = given
        values = function(*args, **kwargs)
        wants_each = accepts_events(http)
        try:
            # Until then the router may send the request to another replica, should this one be
            # gone; an answer's head would show it too, but its status is not known yet.
            if await values.wait_admitted(wants_each=wants_each):
                http.tell_start()
            if wants_each:
                await send_events(http, values)
            else:
                rest = answer(http, await values)
                if rest is not None:
                    await rest
        finally:
            await values.aclose()

    return run


def _guarded(run: _Run, arguments: Arguments) -> HttpHandler:
    prepare = _prepare(needs_body=arguments.needs_body)

    async def handle(http: HttpCall) -> None:
        try:
            if http.whole_body is None and not await prepare(http):
                return
            await run(http, arguments.read(http))
        except Exception as error:
            answer_failure(http, error)

    return handle


def _prepare(*, needs_body: bool) -> Callable[[HttpCall], Awaitable[bool]]:
    """Return what has to be done before the arguments of a request are read.

    Not of one that came whole: it is there, and no WebSocket.
    """

    async def prepare(http: HttpCall) -> bool:
        if http.head.is_websocket:
            _refuse_websocket(http)
            return False
        if needs_body:
            await http.body()
        return True

    return prepare


def _refuse_websocket(http: HttpCall) -> None:
    # With status 200 the client would take the answer's body for frames.
    http.respond(400, TEXT, b"Nothing here speaks WebSocket; send an HTTP request.\n")


def _runner(method: PlainMethod) -> _Run:
    function, timeout_s = method.function, method.options.timeout_s
    if method.kind is Kind.SYNC:
        return _threaded(function)
    if not method.streams:
        assert timeout_s is not None
        return _limited(function, timeout_s)

    async def run(http: HttpCall, given: Given) -> None:
        args, kwargs = given
        items = function(*args, **kwargs)
        if method.kind is Kind.GENERATOR:
            items = steps_on_threads(http, items)
        if timeout_s is not None and http.time_remaining() is None:
            items = limited(items, timeout_s)
        await send_stream(http, items)

    return run


def _threaded(function: Callable[..., Any]) -> _Run:
    async def run(http: HttpCall, given: Given) -> None:
        args, kwargs = given
        context = contextvars.copy_context()
        result = await on_thread(http, context, lambda: function(*args, **kwargs))
        rest = answer(http, result)
        if rest is not None:
            await rest

    return run


def _limited(function: Callable[..., Any], timeout_s: float) -> _Run:
    """Limit requests that come without a deadline."""

    async def run(http: HttpCall, given: Given) -> None:
        args, kwargs = given
        if http.time_remaining() is not None:
            result = await function(*args, **kwargs)
        else:
            async with within(timeout_s, timeout_s):
                result = await function(*args, **kwargs)
        rest = answer(http, result)
        if rest is not None:
            await rest

    return run


_EVENTS = b"text/event-stream"
# Proxies must neither keep events back nor answer with those of another request.
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


def accepts_events(http: HttpCall) -> bool:
    """Say whether a client asks for server-sent events in its ``accept`` header."""
    for name, value in http.headers:
        if name == b"accept":
            for each in value.split(b","):
                if each.partition(b";")[0].strip().lower() == _EVENTS:
                    return True
    return False


async def send_events(http: HttpCall, values: AsyncIterator[Any]) -> None:
    """Send each value as an event, and close ``values`` in the end.

    Texts are sent as they are, and everything else as JSON. The head is sent with the first
    event, so what is raised before can still choose the status. What is raised later is an event
    named ``error``, whose data is a JSON object with ``error``, and ends the answer.
    """
    try:
        async for value in values:
            event = _event(value)
            if not http.started:
                http.start(200, _HEADERS)
            await write_for_anyone(http, event)
        if not http.started:
            http.start(200, _HEADERS)
    except Exception as error:
        if not http.started or http.cancel_reason is not None:
            raise
        await _send_error(http, error)
    finally:
        await iterators.close(values)
    http.end()


async def _send_error(http: HttpCall, error: Exception) -> None:
    # What pyserve raises is for callers, such as that a replica ends.
    text = str(error) if isinstance(error, PyserveError) else note_unexpected(http, error)
    data = to_json({"error": text})
    await write_for_anyone(http, b"event: error\ndata: " + data + b"\n\n")


def _event(value: Any) -> bytes:
    data = value.encode() if isinstance(value, str) else to_json(value)
    if b"\n" in data or b"\r" in data:  # Each line is a field of its own.
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        data = b"\ndata: ".join(lines)
    return b"data: " + data + b"\n\n"
