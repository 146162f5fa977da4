"""Answers of plain HTTP as server-sent events, one for each value of a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from pyserve.observe.failures import exc_info_of, failure_logger
from pyserve.observe.places import text_of
from pyserve.replica import iterators
from pyserve.replica.http.answers import write_for_anyone
from pyserve.replica.http.values import to_json

if TYPE_CHECKING:
    from pyserve.aio import HttpCall

_LOGGER = failure_logger(__name__)
_EVENTS = b"text/event-stream"
# Proxies must neither keep events back nor answer with those of another request.
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_NEUTRAL = "the deployment raised an exception; its log has the traceback"


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
    from pyserve.errors import PyserveError

    if isinstance(error, PyserveError):
        text = str(error)
    else:
        path = http.head.target.partition(b"?")[0].decode("latin-1")
        _LOGGER.error(
            "unexpected %s in %s", type(error).__name__, path, exc_info=exc_info_of(error)
        )
        is_open = http.kit.settings.development
        text = f"{type(error).__name__}: {text_of(error)}" if is_open else _NEUTRAL
    data = to_json({"error": text})
    await write_for_anyone(http, b"event: error\ndata: " + data + b"\n\n")


def _event(value: Any) -> bytes:
    data = value.encode() if isinstance(value, str) else to_json(value)
    if b"\n" in data or b"\r" in data:  # Each line is a field of its own.
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        data = b"\ndata: ".join(lines)
    return b"data: " + data + b"\n\n"
