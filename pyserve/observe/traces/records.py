"""Spans of calls that the native side has routed: it makes them of its records, after the calls.

A record is the source of the span of its hop (a server's at the ingress, a client's at a handle),
of one client span for each attempt at a replica, whose ids were sent along, and of the times that
the call was parked.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from pyserve.observe.seldom import Seldom
from pyserve.observe.traces.spans import Spans

# Sampled calls that wait for their spans: what is taken of the native side at once.
_WAITING_MAX = 4096
_CLOSE_TIMEOUT_S = 2.0
_LOGGER, _LINES = logging.getLogger(__name__), Seldom()


class CallRecord(Protocol):
    """What is used of ``_router.CallRecord``."""

    @property
    def is_sampled(self) -> bool: ...

    def encode_spans(self) -> Sequence[bytes]:
        """Return the spans of a sampled call."""


class RecordedSpans:
    """Makes the spans of sampled calls and hands them to the exporters, in a thread of its own.

    The thread that brings the records has more urgent work: it may be the controller's.

    Args:
        spans: Of this process.

    Attributes:
        dropped: Sampled calls without spans, because more came than could be made.
    """

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._waiting: deque[CallRecord] = deque()
        self._has_news, self._is_closing = threading.Event(), False
        self.dropped = self._told = 0
        self._thread = threading.Thread(target=self._run, name="pyserve-record-spans", daemon=True)
        self._thread.start()

    def export(self, records: Iterable[CallRecord]) -> None:
        """Take what has been drained; calls that are not sampled have no spans."""
        for record in records:
            if not record.is_sampled:
                continue
            if len(self._waiting) < _WAITING_MAX:
                self._waiting.append(record)
            else:
                self.dropped += 1
        self._has_news.set()
        if self.dropped > self._told and _LINES.allows("dropped"):
            _LOGGER.warning("%d sampled calls have no spans: too many came at once", self.dropped)
            self._told = self.dropped

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Make what waits, for ``timeout_s`` at most, and take no more."""
        self._is_closing = True
        self._has_news.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            self._has_news.wait()
            self._has_news.clear()
            while self._waiting:
                self._make(self._waiting.popleft())
            if self._is_closing:
                return

    def _make(self, record: CallRecord) -> None:
        try:
            self._spans.hand_over(record.encode_spans())
        except Exception:
            # Of the user's processors anything may come; the next call is another one.
            if _LINES.allows():
                _LOGGER.exception("spans of calls were lost")
