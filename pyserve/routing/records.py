"""Takes the records of finished calls from the native side and passes them to listeners.

The native side keeps a bounded number of records and drops the oldest. It does not announce them,
since that would slow down every call. While a listener needs every record (an access log) they are
taken periodically; lazy listeners take them when they look. Spans are taken separately.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from pyserve.bridge import rust
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.metrics import Scrape
from pyserve.observe.traces.process import PROCESS_TRACING

_LOGGER = logging.getLogger(__name__)

Record = TypeVar("Record")

# Taken so often, the 4 096 records that wait suffice for 16 000 kept calls a second; a process at
# rest wakes four times a second while it traces. After a large part the next look comes sooner.
PERIOD_S = 0.25
_BUSY_PERIOD_S = 0.05
_LIMIT = 512
_BUSY_COUNT = 1024
# The most that can wait. If calls end faster than records are taken, there are always more.
_AT_ONCE_MAX = 4096


class Source(Protocol[Record]):
    """The part of ``rust.CallRecords`` that is used here."""

    def take(self, limit: int) -> list[Record]:
        """Return the oldest records that wait, at most ``limit``."""


class Records(Generic[Record]):
    """Hands the records of one process to its listeners; used on one loop.

    Args:
        source: Where the native side puts them.
    """

    def __init__(self, source: Source[Record]) -> None:
        self._source = source
        self._listeners: list[tuple[Callable[[Sequence[Record]], object], bool]] = []
        self._wanted = asyncio.Event()
        self._lines = LogRateLimit()

    def listen(
        self, callback: Callable[[Sequence[Record]], object], *, is_lazy: bool = False
    ) -> Callable[[], None]:
        """Call ``callback`` with the records, oldest first; return what ends that.

        Args:
            callback: Must not wait.
            is_lazy: No records are taken on its behalf, except by ``take_now``.
        """
        entry = (callback, is_lazy)
        self._listeners.append(entry)
        self._look_for_wishes()

        def end() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)
                self._look_for_wishes()

        return end

    def take_now(self) -> int:
        """Hand over everything that waits, and return how many records that was."""
        return sum(self._hand_over())

    async def follow(self) -> None:
        """Take records while somebody wants each of them, until this is cancelled."""
        try:
            while True:
                await self._wanted.wait()
                count = 0
                for part in self._hand_over():
                    count += part
                    await asyncio.sleep(0)
                await asyncio.sleep(_BUSY_PERIOD_S if count >= _BUSY_COUNT else PERIOD_S)
        finally:
            self.take_now()  # What came last.

    def _hand_over(self) -> Iterator[int]:
        """Hand over what waits in parts, and yield how many records each was."""
        for _ in range(0, _AT_ONCE_MAX, _LIMIT):
            records = self._source.take(_LIMIT) if self._listeners else []
            if not records:
                return
            for callback, _ in tuple(self._listeners):
                self._tell(callback, records)
            yield len(records)

    def _tell(self, callback: Callable[[Sequence[Record]], object], records: list[Record]) -> None:
        try:
            callback(records)
        except Exception:
            # The other listeners must get theirs, and the next records may succeed.
            if self._lines.allows():
                _LOGGER.exception("records of calls could not be taken by %s", callback)

    def _look_for_wishes(self) -> None:
        if any(not is_lazy for _, is_lazy in self._listeners):
            self._wanted.set()
        else:
            self._wanted.clear()


class CallRecords(Records[rust.CallRecord]):
    """The records of the calls through one table, and the spans of those that are sampled.

    Args:
        samples_root: Calls that come without a decision may begin a trace.
    """

    def __init__(self, *, samples_root: bool) -> None:
        spans = PROCESS_TRACING.spans
        # Without spans nobody is sampled, and everything is forwarded as it came.
        ratio = None if spans is None else PROCESS_TRACING.sampling_ratio
        self.native = rust.CallRecords(sampling_ratio=ratio, samples_root=samples_root)
        super().__init__(self.native)
        self._spans = spans
        if spans is not None:
            spans.sources.add(self.native)

    def keep_all(self, is_on: bool) -> None:
        """Keep each call that ends, not only those that are worth it."""
        self.native.set_keep_all(is_on)

    def add_metrics(self, scrape: Scrape, *, caller: str, caller_id: str) -> None:
        """Add how many records and spans there were; from any thread."""
        bare, labels = scrape.without_labels(), {"caller": caller, "caller_id": caller_id}
        counts = self.native.stats()
        bare.add("pyserve_call_records_total", counts["recorded"], **labels)
        bare.add("pyserve_call_records_dropped_total", counts["dropped"], **labels)
        if self._spans is not None:
            bare.add("pyserve_call_spans_dropped_total", counts["without_spans"], **labels)

    async def follow(self) -> None:
        """Do what ``Records.follow`` does; afterwards the last spans are taken."""
        try:
            await super().follow()
        finally:
            if self._spans is not None:
                self._spans.sources.remove(self.native)
