"""Messages that a WebSocket's client has sent and the application has not received yet."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.replica.asgi.scope import Message

# Limits on the messages read ahead of the application. A close and pongs behind them wait too. The
# number is uvicorn's, the size is arbitrary.
_UNREAD_MESSAGES_MAX = 32
_UNREAD_BYTES_MAX = 64 * 1024


class MessageTooLarge(Exception):
    """A message of a client is larger than the server takes."""


class Inbox:
    """Messages in order, assembled from their fragments; at the end the disconnect.

    Args:
        message_bytes_max: The most that one message may have, text as UTF-8.
    """

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._messages: deque[tuple[Message, int]] = deque()  # With their sizes.
        self._unread_bytes = 0
        self._end: Message | None = None
        # Not a list: fragments of a byte each would take fifty times their size.
        self._text = io.StringIO()
        self._bytes = io.BytesIO()
        self._size_bytes = 0
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()

    def put(self, message: Message, size_bytes: int = 0) -> None:
        """Add an event for the application."""
        self._messages.append((message, size_bytes))
        self._unread_bytes += size_bytes
        self._changed.set()

    def add(self, data: str | bytes | bytearray, *, is_last: bool) -> None:
        """Add a fragment of a message, which the application gets when it is complete.

        Raises:
            MessageTooLarge: It has become larger than it may.
        """
        self._size_bytes += len(data.encode()) if isinstance(data, str) else len(data)
        if self._size_bytes > self._message_bytes_max:
            self._text, self._bytes = io.StringIO(), io.BytesIO()
            raise MessageTooLarge
        if isinstance(data, str):
            self._text.write(data)
            if is_last:
                text, self._text = self._text.getvalue(), io.StringIO()
                self._complete({"type": "websocket.receive", "text": text})
        else:
            self._bytes.write(data)
            if is_last:
                whole, self._bytes = self._bytes.getvalue(), io.BytesIO()
                self._complete({"type": "websocket.receive", "bytes": whole})

    def _complete(self, message: Message) -> None:
        size_bytes, self._size_bytes = self._size_bytes, 0
        self.put(message, size_bytes)

    def finish(self, code: int, reason: str | None = "") -> None:
        """Record how it ended, once; the application gets that after the earlier messages."""
        if self._end is None:
            self._end = {"type": "websocket.disconnect", "code": code, "reason": reason or ""}
            self._changed.set()
            self._taken.set()

    async def get(self) -> Message:
        """Return the next event; after the end, the end again."""
        while True:
            if self._messages:
                message, size_bytes = self._messages.popleft()
                self._unread_bytes -= size_bytes
                self._taken.set()
                return message
            if self._end is not None:
                return self._end
            self._changed.clear()
            await self._changed.wait()

    @property
    def is_full(self) -> bool:
        """Whether reading has to stop until the application has taken some messages."""
        is_much = len(self._messages) >= _UNREAD_MESSAGES_MAX
        return (is_much or self._unread_bytes >= _UNREAD_BYTES_MAX) and self._end is None

    async def room(self) -> None:
        """Wait until there is room for more, or nothing will be taken any more."""
        while self.is_full:
            self._taken.clear()
            await self._taken.wait()
