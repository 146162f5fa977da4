"""Spans of calls that the native side has routed: it makes them of its records, after the calls.

A record is the source of the span of its hop (a server's at the ingress, a client's at a handle),
of one client span for each attempt at a replica, whose ids were sent along, and of the times that
the call was parked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from pyserve.observe.seldom import Seldom
from pyserve.observe.traces.spans import Spans

# 4 096 sampled calls wait at the native side, which suffices for 16 000 a second; a process at rest
# wakes four times a second while it traces. After a large part the next look comes sooner.
_PERIOD_S = 0.25
_BUSY_PERIOD_S = 0.05
_BUSY_SPANS = 2048
# In one step, which keeps other threads waiting for their objects.
_CALLS = 256
_CLOSE_TIMEOUT_S = 2.0
_LOGGER, _LINES = logging.getLogger(__name__), Seldom()


class SampledCalls(Protocol):
    """What is used of ``_router.CallRecords``."""

    def take_spans(self, limit: int) -> Sequence[bytes]:
        """Return the spans of up to ``limit`` calls."""

    def stats(self) -> dict[str, int]:
        """Return counts, ``without_spans`` among them."""


class RecordedSpans:
    """Hands the spans of sampled calls to the exporters, in a thread of its own.

    No loop takes part: that of an ingress may be the controller's, and has more urgent work.

    Args:
        spans: Of this process.
        calls: Where the native side keeps them.
    """

    def __init__(self, spans: Spans, calls: SampledCalls) -> None:
        self._spans, self._calls = spans, calls
        self._is_closing = threading.Event()
        self._told = 0
        self._thread = threading.Thread(target=self._run, name="pyserve-record-spans", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Sampled calls without spans, because more came than could be made."""
        return self._calls.stats()["without_spans"]

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Make the spans that are left, for ``timeout_s`` at most, and take no more."""
        self._is_closing.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        period_s = _PERIOD_S
        while not self._is_closing.wait(period_s):
            period_s = _BUSY_PERIOD_S if self._make_all() >= _BUSY_SPANS else _PERIOD_S
        self._make_all()  # What came last.

    def _make_all(self) -> int:
        """Make the spans of what waits, and return how many those are."""
        count = 0
        while made := self._calls.take_spans(_CALLS):
            count += len(made)
            self._hand_over(made)
        dropped = self.dropped
        if dropped > self._told and _LINES.allows("dropped"):
            _LOGGER.warning("%d sampled calls have no spans: too many came at once", dropped)
            self._told = dropped
        return count

    def _hand_over(self, made: Sequence[bytes]) -> None:
        for span in made:
            try:
                self._spans.hand_over(span)
            except Exception:
                # Of the user's processors anything may come; the next span is another one.
                if _LINES.allows():
                    _LOGGER.exception("spans of calls were lost")
