"""Takes the spans of finished calls from the native side, which makes them after the calls.

One source has the calls that a table has routed: the span of a call's hop (a server's at the
ingress, a client's at a handle), of each attempt at a replica, and of the times that it was parked.
Another has the calls that a server has answered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pyserve.observe.log_rate_limit import LogRateLimit

# 4 096 calls wait at each source, which suffices for 16 000 a second; a process at rest wakes four
# times a second while it traces. After a large part the next look comes sooner.
_PERIOD_S = 0.25
_BUSY_PERIOD_S = 0.05
_BUSY_SPANS = 2048
# In one step, which keeps other threads waiting for their objects.
_CALLS = 256
_LOGGER, _LINES = logging.getLogger(__name__), LogRateLimit()


class SpanSource(Protocol):
    """The part of ``_router.CallRecords`` and ``_router.ServedSpans`` that is used here."""

    def take_spans(self, limit: int) -> Sequence[bytes]:
        """Return the spans of up to ``limit`` calls."""

    def stats(self) -> dict[str, int]:
        """Return counts, ``without_spans`` among them."""


class SpanSources:
    """Hands finished spans to the exporters, in a thread of its own.

    No event loop takes part: that of an ingress may be the controller's, and has more urgent work.
    The thread starts at the beginning, since none can start while the interpreter shuts down.

    Args:
        hand_over: Takes encoded spans; see ``EncodedSpan``.
        on_close: Called in the thread when the last have been handed over.
    """

    def __init__(
        self, hand_over: Callable[[Sequence[bytes]], None], on_close: Callable[[], object]
    ) -> None:
        self._hand_over, self._on_close = hand_over, on_close
        self._sources: tuple[SpanSource, ...] = ()
        self._leaving: tuple[SpanSource, ...] = ()
        self._changing = threading.Lock()
        # So that who has asked for all has them handed over when this returns. A processor may ask.
        self._taking = threading.RLock()
        self._lost = self._lost_told = 0
        self._is_closing, self._is_closed = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="pyserve-spans", daemon=True).start()

    def add(self, source: SpanSource) -> None:
        """Look at this one too."""
        with self._changing:
            self._sources = (*self._sources, source)

    def remove(self, source: SpanSource) -> None:
        """Look at this one once more, and then never again. Idempotent.

        It does not wait for that: the caller may run on a loop, and processors may take long.
        """
        with self._changing:
            self._leaving = (*self._leaving, source)

    def take_all(self) -> int:
        """Hand over all waiting spans, and return their number."""
        with self._taking:
            sources, leaving = self._sources, self._leaving
            count = sum(map(self._take, sources))
            lost = self._lost + sum(map(_lost_by, sources))
            self._drop(leaving)
        if lost > self._lost_told and _LINES.allows("lost"):
            _LOGGER.warning("%d sampled calls have no spans: too many came at once", lost)
            self._lost_told = lost
        return count

    def leave_to_parent(self) -> None:
        """Take nothing more: this is a forked child, and what waits is its parent's."""
        self._sources = ()
        # The parent's thread may have held them.
        self._changing, self._taking = threading.Lock(), threading.RLock()

    def close(self, timeout_s: float) -> None:
        """Hand over what waits and close the exporters, for ``timeout_s`` at most. Idempotent."""
        self._is_closing.set()
        self._is_closed.wait(timeout_s)

    def _run(self) -> None:
        period_s = _PERIOD_S
        while not self._is_closing.wait(period_s):
            period_s = _BUSY_PERIOD_S if self.take_all() >= _BUSY_SPANS else _PERIOD_S
        try:
            self.take_all()
            # A collector that does not answer holds this for long.
            self._on_close()
        finally:
            self._is_closed.set()

    def _take(self, source: SpanSource) -> int:
        count = 0
        while spans := source.take_spans(_CALLS):
            count += len(spans)
            self._hand_over(spans)
        return count

    def _drop(self, leaving: Sequence[SpanSource]) -> None:
        if not leaving:
            return
        with self._changing:
            dropped = [each for each in self._sources if each in leaving]
            self._sources = tuple(each for each in self._sources if each not in leaving)
            self._leaving = self._leaving[len(leaving) :]
        self._lost += sum(map(_lost_by, dropped))


def _lost_by(source: SpanSource) -> int:
    return source.stats()["without_spans"]
