"""Answers of plain HTTP as server-sent events, one for each value of a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from pyserve.errors import PyserveError
from pyserve.replica import iterators
from pyserve.replica.http.answers import note_unexpected, write_for_anyone
from pyserve.replica.http.values import to_json

if TYPE_CHECKING:
    from pyserve.aio import HttpCall

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
