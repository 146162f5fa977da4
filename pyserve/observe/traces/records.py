"""Spans of calls that the native side has routed: made of its records, after the calls.

A record is the source of the span of its hop (a server's at the ingress, a client's at a handle),
of one client span for each attempt at a replica, whose ids were sent along, and of the times that
the call was parked.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from pyserve.observe.records import Attempt, CallRecord
from pyserve.observe.seldom import Seldom
from pyserve.observe.traces.semantics import (
    ERROR_TYPE,
    RPC_SYSTEM,
    SCHEMA_URL,
    Attributes,
    http_attributes,
    http_end,
    http_name,
    peer_attributes,
    rpc_attributes,
    rpc_end,
)
from pyserve.observe.traces.spans import Spans
from pyserve.version import version

Said = dict[str, str | int | float]

# Sampled calls that wait for their spans: what is taken of the native side at once.
_WAITING_MAX = 4096
_CLOSE_TIMEOUT_S = 2.0
_LOGGER, _LINES = logging.getLogger(__name__), Seldom()

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("pyserve", version(), SCHEMA_URL)
_HANDLE = "handle"
_PLAIN_HTTP = ("http", "websocket")
_CONNECT = ("connect", "json")
# What is wrong with these is told by the attempt that follows, or by the call's own end.
_WITHOUT_ERROR = ("ok", "superseded")


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
            self._spans.hand_over(_Parts(record, self._spans.provider.resource).all())
        except Exception:
            # Of the user's processors anything may come; the next call is another one.
            if _LINES.allows():
                _LOGGER.exception("spans of calls were lost")


class _Parts:
    """The spans of one record."""

    def __init__(self, record: CallRecord, resource: Resource) -> None:
        self._record = record
        self._resource = resource
        self._trace_id = int.from_bytes(record.trace_id)
        self._state = TraceState.from_header([record.tracestate]) if record.tracestate else None
        self._hop = self._context(record.span_id)
        self._is_http = record.door in _PLAIN_HTTP
        self._attempts = record.attempts  # A new list each time.

    def all(self) -> Iterator[ReadableSpan]:
        """Yield each of them, finished."""
        record = self._record
        yield self._call()
        for attempt in self._attempts:
            yield self._attempt(attempt)
        for start_ns, end_ns in parked_times(record.parked_ns, record.duration_ns, self._attempts):
            yield self._span(
                "parked",
                self._context(random.randbytes(8)),  # noqa: S311  # as the SDK makes ids
                SpanKind.INTERNAL,
                (start_ns, end_ns),
                {"pyserve.deployment": record.deployment},
                parent=self._hop,
            )

    def _call(self) -> ReadableSpan:
        record = self._record
        is_handle = record.door == _HANDLE
        attributes = {
            **self._begun(),
            **({} if is_handle else peer_attributes(record.peer)),
            **self._ended(is_client=is_handle),
            **_told(record),
        }
        events = []
        if record.first_byte_ns >= 0:
            events.append(self._event("first byte", record.first_byte_ns))
        return self._span(
            self._name(),
            self._hop,
            SpanKind.CLIENT if is_handle else SpanKind.SERVER,
            (0, record.duration_ns),
            attributes,
            events,
            parent=self._context(record.parent_id, is_remote=True),
        )

    def _attempt(self, attempt: Attempt) -> ReadableSpan:
        replica, span_id, start_ns, headers_ns, end_ns, why, outcome = attempt
        attributes: Said = {
            **self._begun(),
            "pyserve.replica": replica,
            "pyserve.attempt.reason": why,
            "pyserve.attempt.outcome": outcome,
        }
        if outcome == "ok" or (outcome == "failed" and self._answers(attempt)):
            attributes.update(self._ended(is_client=True))
        elif outcome not in _WITHOUT_ERROR:
            attributes[ERROR_TYPE] = outcome
        events = [self._event("head of the answer", headers_ns)] if headers_ns >= 0 else []
        times = (start_ns, max(end_ns, start_ns))
        context = self._context(span_id)
        return self._span(
            self._name(), context, SpanKind.CLIENT, times, attributes, events, parent=self._hop
        )

    def _answers(self, attempt: Attempt) -> bool:
        """Return whether the call has ended as this attempt has."""
        return self._record.answered_by == "replica" and attempt == self._attempts[-1]

    def _name(self) -> str:
        method = self._record.method
        if not self._is_http:
            return method.removeprefix("/")
        verb, _, route = method.partition(" ")
        return http_name(verb, route)

    def _begun(self) -> Said:
        method = self._record.method
        if self._is_http:
            verb, _, route = method.partition(" ")
            return {**http_attributes(verb, route)}
        begun: Said = {**rpc_attributes(method)}
        if self._record.door in _CONNECT:
            begun[RPC_SYSTEM] = "connectrpc"
        return begun

    def _ended(self, *, is_client: bool) -> Attributes:
        record = self._record
        if not self._is_http:
            return rpc_end(record.code)
        return http_end(record.http_status, is_client=is_client)

    def _context(self, span_id: bytes, *, is_remote: bool = False) -> SpanContext | None:
        if not span_id:
            return None
        return SpanContext(
            self._trace_id, int.from_bytes(span_id), is_remote, _SAMPLED, self._state
        )

    def _event(self, name: str, after_ns: int) -> Event:
        return Event(name, timestamp=self._record.start_unix_ns + after_ns)

    def _span(
        self,
        name: str,
        context: SpanContext | None,
        kind: SpanKind,
        times_ns: tuple[int, int],
        attributes: Said,
        events: Sequence[Event] = (),
        *,
        parent: SpanContext | None,
    ) -> ReadableSpan:
        begun = self._record.start_unix_ns
        has_failed = ERROR_TYPE in attributes
        return ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            events,
            kind=kind,
            status=Status(StatusCode.ERROR if has_failed else StatusCode.UNSET),
            start_time=begun + times_ns[0],
            end_time=begun + times_ns[1],
            instrumentation_scope=_SCOPE,
        )


def parked_times(
    parked_ns: int, duration_ns: int, attempts: Sequence[Attempt]
) -> Iterator[tuple[int, int]]:
    """Yield from when to when a call was parked, in nanoseconds from its start.

    The record has the sum. What lies between attempts can be other work too (reading the request,
    connecting), which comes first; so each wait ends where its attempt begins.
    """
    last_ns = 0
    for _, _, start_ns, _, end_ns, _, _ in sorted(attempts, key=lambda attempt: attempt[2]):
        wait_ns = min(parked_ns, start_ns - last_ns)
        if wait_ns > 0:
            yield start_ns - wait_ns, start_ns
            parked_ns -= wait_ns
        last_ns = max(last_ns, end_ns)
    # Refused while it waited, or after the last attempt.
    wait_ns = min(parked_ns, duration_ns - last_ns)
    if wait_ns > 0:
        yield duration_ns - wait_ns, duration_ns


def _told(record: CallRecord) -> Said:
    found: Said = {
        "pyserve.request_id": record.request_id,
        "pyserve.door": record.door,
        "pyserve.application": record.application,
        "pyserve.deployment": record.deployment,
        "pyserve.model_id": record.model_id,
        "pyserve.refused": record.refused,
        "pyserve.answered_by": record.answered_by,
        "pyserve.explanation": record.explanation,
    }
    found = {name: value for name, value in found.items() if value}
    found["pyserve.request.size"] = record.request_bytes
    found["pyserve.response.size"] = record.response_bytes
    found["pyserve.parked_ms"] = record.parked_ns / 1e6
    return found
