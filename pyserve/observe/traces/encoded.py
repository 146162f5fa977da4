"""Spans that the native side has made: bytes for the exporter, in full for whoever looks."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from pyserve.observe.seldom import Seldom
from pyserve.version import version

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The conventions that the native side's attributes follow."""

_SCOPE = InstrumentationScope("pyserve", version(), SCHEMA_URL)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_LOGGER, _LINES = logging.getLogger(__name__), Seldom()

# Spans are passed on so often; a process at rest wakes four times a second while it traces.
_PERIOD_S = 0.25
# What waits meanwhile suffices for 32 000 a second, in some MiB.
_WAITING_MAX = 8192
# The SDK's queue and requests count items. 512 of this many spans are 2 MB, of the 4 MiB that a
# receiver takes unless told otherwise.
_JOINED_MAX = 8


class EncodedSpan(ReadableSpan):
    """A finished span, decoded when one of its fields is read.

    Args:
        scope_spans: The bytes of OTLP's ``ScopeSpans`` with this span alone; on their way to
            ``EncodedSpanExporter`` there are several in one, of which the first is decoded.
        resource: Of the process that made it.
    """

    def __init__(self, scope_spans: bytes, resource: Resource) -> None:
        # The base's own constructor would set the fields.
        self.scope_spans = scope_spans
        self._resource = resource

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self.__dict__.update(vars(decoded(self.scope_spans, self._resource)))
        return self.__dict__[name]


class EncodedSpanProcessor(BatchSpanProcessor):
    """Takes encoded spans as they are, which the SDK's decodes to see whether they are sampled.

    They wait for a thread that hands them on, several in one: each costs its caller an append, and
    the queue of the SDK has less to do.

    Args:
        span_exporter: Takes several in one.
    """

    def __init__(self, span_exporter: SpanExporter) -> None:
        super().__init__(span_exporter)
        self._encoded: deque[EncodedSpan] = deque()
        self._dropped = self._told = 0
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyserve-spans-out", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """See ``SpanProcessor``."""
        if not isinstance(span, EncodedSpan):
            super().on_end(span)
        elif len(self._encoded) < _WAITING_MAX:
            self._encoded.append(span)
        else:
            self._dropped += 1

    def shutdown(self) -> None:
        """See ``SpanProcessor``."""
        self._is_closing.set()
        self._thread.join()
        super().shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        """See ``SpanProcessor``."""
        self._pass_on()
        return super().force_flush(timeout_millis)

    def _run(self) -> None:
        while not self._is_closing.wait(_PERIOD_S):
            self._pass_on()
        self._pass_on()  # What came last.

    def _pass_on(self) -> None:
        while spans := list(_taken(self._encoded, _JOINED_MAX)):
            joined = b"".join(span.scope_spans for span in spans)
            self._batch_processor.emit(EncodedSpan(joined, spans[0].resource))
        dropped = self._dropped
        if dropped > self._told and _LINES.allows():
            _LOGGER.warning(
                "spans of calls that are lost, because too many ended at once: %d", dropped
            )
            self._told = dropped


def _taken(spans: deque[EncodedSpan], count: int) -> Iterator[EncodedSpan]:
    # Others may take as well, so that each step may be the last.
    with suppress(IndexError):
        for _ in range(count):
            yield spans.popleft()


_FIELDS = frozenset(vars(ReadableSpan("", resource=Resource.get_empty())))


def decoded(scope_spans: bytes, resource: Resource) -> ReadableSpan:
    """Return the span that is encoded; see ``EncodedSpan``."""
    span = trace_pb2.ScopeSpans.FromString(scope_spans).spans[0]
    trace_id = int.from_bytes(span.trace_id)
    state = TraceState.from_header([span.trace_state]) if span.trace_state else None

    def context(span_id: bytes, *, is_remote: bool) -> SpanContext | None:
        if not span_id:
            return None
        return SpanContext(trace_id, int.from_bytes(span_id), is_remote, _SAMPLED, state)

    is_remote = bool(span.flags & trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
    return ReadableSpan(
        span.name,
        context(span.span_id, is_remote=False),
        context(span.parent_span_id, is_remote=is_remote),
        resource,
        {pair.key: _value(pair.value) for pair in span.attributes},
        [Event(event.name, timestamp=event.time_unix_nano) for event in span.events],
        # OTLP's have one more, for a kind that nobody has told.
        kind=SpanKind(span.kind - 1),
        status=Status(StatusCode(span.status.code), span.status.message or None),
        start_time=span.start_time_unix_nano,
        end_time=span.end_time_unix_nano or None,
        instrumentation_scope=_SCOPE,
    )


def _value(value: AnyValue) -> str | int | float:
    # The native side has no other kinds.
    kind = value.WhichOneof("value")
    if kind == "int_value":
        return value.int_value
    return value.double_value if kind == "double_value" else value.string_value
