"""The access log: one line for each call, written beside the path of the calls.

A call's end costs an append; lines are made and written in turns of the loop of their own, a few at
a time, so that a full buffer holds no call up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Entry = TypeVar("Entry")

_LOGGER = logging.getLogger(__name__)
ACCESS_LOGGER = "pyserve.access"
# Above so many calls a second nobody reads a line for each; who wants them all says so.
CALLS_PER_S_MAX = 100
SECOND_S = 1.0
# How long an entry may wait for others; short enough for a person who watches the log.
FLUSH_S = 1.0
# Lines formatted in one turn of the loop: about a third of a millisecond. Arbitrary.
_PER_TURN = 32
# Entries that wait at most; beyond it the oldest are dropped and counted. Arbitrary.
_WAITING_MAX = 20_000
# Longer paths are cut off in a line, since clients choose their length.
_LABEL_MAX = 256


class AccessBuffer(Generic[Entry]):
    """Buffers entries until there are enough, a second has passed, or one is an error.

    Args:
        write: Writes entries down, oldest first; on the loop, or on the thread of an error.
        size: Entries of a full buffer; 1: each is written in the loop's next turn.
        loop: Where entries are written.
    """

    def __init__(
        self, write: Callable[[Sequence[Entry]], None], size: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._write = write
        self._size = size
        self._loop = loop
        # Appended to and taken from on several threads, each in one step.
        self._entries: deque[Entry] = deque(maxlen=_WAITING_MAX)
        self._is_scheduled = False
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entry: Entry) -> None:
        """Keep an entry; on any thread."""
        entries = self._entries
        entries.append(entry)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._wait)
        if len(entries) >= self._size and not self._is_full and self._size > 1:
            self._is_full = True
            self._loop.call_soon_threadsafe(self._write_some)

    def flush(self) -> None:
        """Write all of them now; on any thread."""
        while entries := self._take(_WAITING_MAX):
            self._write(entries)

    def _wait(self) -> None:
        if self._size == 1:
            self._write_some()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_S, self._write_some)

    def _write_some(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if entries := self._take(_PER_TURN):
            self._write(entries)
        if self._entries:
            self._loop.call_soon(self._write_some)
            return
        self._is_full = self._is_scheduled = False
        # One that has come between the two looks has scheduled nothing.
        if self._entries and not self._is_scheduled:
            self._is_scheduled = True
            self._wait()

    def _take(self, count: int) -> list[Entry]:
        taken: list[Entry] = []
        while len(taken) < count:
            try:
                taken.append(self._entries.popleft())
            except IndexError:
                break
        return taken


class Pace:
    """Switches a log off when more calls come in a second than anybody reads, and on again later.

    Args:
        switch: Switches it; on the loop.
        calls: Counts all calls, those without a line too.
        loop: Where ``switch`` is called.
    """

    def __init__(
        self,
        switch: Callable[[bool], None],
        calls: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._switch = switch
        self._calls = calls
        self._loop = loop
        self._second_began = loop.time()
        self._calls_of_second = 0
        self._paused: asyncio.TimerHandle | None = None

    def note(self, count: int = 1) -> int:
        """Return for how many of so many calls there are lines; on any thread."""
        now = self._loop.time()
        if now - self._second_began >= SECOND_S:
            self._second_began, self._calls_of_second = now, 0
        left = max(CALLS_PER_S_MAX - self._calls_of_second, 0)
        self._calls_of_second += count
        if self._calls_of_second > CALLS_PER_S_MAX and self._paused is None:
            self._loop.call_soon_threadsafe(self._pause)
        return min(count, left)

    @property
    def is_paused(self) -> bool:
        """There are too many calls just now."""
        return self._paused is not None

    def close(self) -> None:
        """Switch nothing any more."""
        if self._paused is not None:
            self._paused.cancel()

    def _pause(self) -> None:
        if self._paused is not None:
            return
        self._switch(False)
        _LOGGER.info(
            "more than %d calls a second: the access log pauses; PYSERVE_ACCESS_LOG=1 keeps it on",
            CALLS_PER_S_MAX,
        )
        # Ticks only while there are so many calls that nobody notices it.
        calls = self._calls()
        self._paused = self._loop.call_later(SECOND_S, self._look, calls, calls)

    def _look(self, first: int, before: int) -> None:
        calls = self._calls()
        if calls - before > CALLS_PER_S_MAX:
            self._paused = self._loop.call_later(SECOND_S, self._look, first, calls)
            return
        self._paused = None
        self._second_began, self._calls_of_second = self._loop.time(), 0
        self._switch(True)
        _LOGGER.info("the access log goes on; it left about %d calls out", calls - first)


class FlushOnError(logging.Handler):
    """Has what waits written before a record of an error is, so that the log stays in order."""

    def __init__(self, flush: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._flush = flush

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Write what waits."""
        self._flush()


def access_record(
    *,
    ended_at: float,
    request_id: str,
    label: str,
    status: str,
    duration_s: float,
    attempts: int = 1,
    replica: str = "",
    trace_id: str = "",
    client: str = "",
    reason: str = "",
    **more: str,
) -> logging.LogRecord:
    """Return the record of one call.

    Args:
        ended_at: Unix time.
        request_id: Of the call; ``""``: it has none.
        label: Method or route.
        status: In a word: the code of gRPC, or the number of HTTP.
        duration_s: From its begin to its end.
        attempts: How often it was sent to a replica.
        replica: Who has answered, where it is another process.
        trace_id: Of its trace, if that is sampled.
        client: Address of the client, where that is logged.
        reason: Why the client was told something else than the replica has answered, if it was.
        more: What a JSON object has besides.
    """
    label, duration_ms = label[:_LABEL_MAX], round(duration_s * 1e3, 3)
    text = f"{label} {status} {duration_ms:g} ms"
    text += f", by {replica}" if replica else ""
    text += f", attempt {attempts}" if attempts > 1 else ""
    text += f", from {client}" if client else ""
    # It may have names from an answer, which must not look like other lines.
    reason = reason if reason.isprintable() else ascii(reason)
    text += f": {reason}" if reason else ""
    values: dict[str, object] = {
        "name": ACCESS_LOGGER,
        "levelno": logging.INFO,
        "levelname": "INFO",
        "msg": text,
        "created": ended_at,
        "msecs": int(ended_at * 1e3) % 1000,
        "request_id": request_id,
        "trace_id": trace_id,
        "route": label,
        "status": status,
        "duration_ms": duration_ms,
        "attempts": attempts,
        **({"client": client} if client else {}),
        **({"replica": replica} if replica else {}),
        **({"reason": reason} if reason else {}),
        **more,
    }
    return logging.makeLogRecord(values)
