"""Answers that come in pieces: what a generator yields, sent as it is made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from pyserve.aio import ClientDisconnected
from pyserve.errors import Abort
from pyserve.replica import iterators
from pyserve.replica.http.values import BYTES, JSON_LINES, TEXT, to_json

if TYPE_CHECKING:
    from pyserve.aio import HttpCall, HttpHeaders

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
