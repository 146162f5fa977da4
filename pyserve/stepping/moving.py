"""Requests that go on at another replica when theirs ends.

The replica that ends carries the snapshot, since it alone has the caller: it calls its own
deployment with a ``Moved`` in place of the request, and relays the rest of the values.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyserve.stepping.entries import Entry

if TYPE_CHECKING:
    from pyserve.stepping.calls import Call

_LOGGER = logging.getLogger(__name__)

SNAPSHOT_BYTES_MAX = 64 * 1024 * 1024
"""A larger snapshot is not sent: its request goes on where it is. Arbitrary."""
HOPS_MAX = 4
"""A request has passed through so many replicas at most, each of which relays its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A request that has been admitted elsewhere. Travels as a pickle between replicas.

    Attributes:
        request: What ``admit`` takes.
        snapshot: What ``preempt`` has returned; ``None``: it begins again by ``admit``.
        skip: Values from the next one on that its caller has had.
        last: The newest values, of a caller who wants the last one alone.
        hops: How often it has moved, with this time.
    """

    request: Any
    snapshot: Any
    skip: int
    last: Sequence[object]
    hops: int


Elsewhere = Callable[[Moved, bool], AsyncGenerator[object]]
"""Yields the values of a moved request from another replica: each, or only the last."""


class Relays:
    """Hands out the values of requests that have gone on elsewhere. For the event loop.

    Args:
        elsewhere: Where they go on.
        slack: Values that a caller may leave unread.
        take_back: Goes on here with a request that no other replica has taken.
        on_end: Takes the end of a request, and what it failed with.
    """

    def __init__(
        self,
        elsewhere: Elsewhere,
        slack: int,
        take_back: Callable[[Entry[Any]], None],
        on_end: Callable[[Entry[Any], BaseException | None], None],
    ) -> None:
        self._elsewhere = elsewhere
        self._slack = slack
        self._take_back = take_back
        self._on_end = on_end
        self._tasks: dict[Call, asyncio.Task[None]] = {}
        self._reads: dict[Call, asyncio.Event] = {}

    def begin(self, entry: Entry[Any], moved: Moved) -> None:
        """Send a request away, unless its caller has gone."""
        call: Call = entry.call
        if call.is_ended:
            return
        relay = self._relay(entry, moved)
        task = asyncio.get_running_loop().create_task(relay, context=call.context)
        self._tasks[call] = task
        task.add_done_callback(lambda _: self._tasks.pop(call))

    def read_on(self, call: Call) -> bool:
        """Go on with a call whose caller has read; return whether it is one of these."""
        if call in self._reads and call.sent - call.read <= self._slack // 2:
            self._reads[call].set()
        return call in self._tasks

    def end(self, call: Call) -> None:
        """End a call whose caller has gone, if it is one of these."""
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End all of them."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, entry: Entry[Any], moved: Moved) -> None:
        call: Call = entry.call
        before = call.sent
        failure: BaseException | None = None
        try:
            check_size(moved)
            async with contextlib.aclosing(self._elsewhere(moved, call.wants_each)) as values:
                async for value in values:
                    call.sent += 1
                    call.deliver((value,), False, None)
                    if call.sent - call.read > self._slack and call.wants_each:
                        await self._wait_read(call)
        except Exception as error:
            if call.is_ended:
                return
            if call.sent == before:
                _LOGGER.warning("a request goes on here, and not at another replica: %s", error)
                self._take_back(entry)
                return
            failure = error
        self._on_end(entry, failure)

    async def _wait_read(self, call: Call) -> None:
        """Wait until a slow reader has read, as a parked state does."""
        has_read = self._reads[call] = asyncio.Event()
        call.is_parked = True
        try:
            await has_read.wait()
        finally:
            call.is_parked = False
            del self._reads[call]


def check_size(moved: Moved) -> None:
    """Check that a request can be sent to another replica.

    Raises:
        ValueError: It is larger than ``SNAPSHOT_BYTES_MAX``.
        Exception: It cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps((moved.request, moved.snapshot), 5, buffer_callback=buffers.append)
    size_bytes = len(body) + sum(each.raw().nbytes for each in buffers)
    if size_bytes > SNAPSHOT_BYTES_MAX:
        raise ValueError(f"it takes {size_bytes} bytes, more than {SNAPSHOT_BYTES_MAX}")
