"""Spans of the native side: bytes for the exporter, decoded for other readers on demand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.version import version

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The conventions that the native side's attributes follow."""

_SCOPE = InstrumentationScope("pyserve", version(), SCHEMA_URL)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_LOGGER, _LINES = logging.getLogger(__name__), LogRateLimit()

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
    """Takes encoded spans as they are, which the SDK's decodes to see whether they are sampled."""

    def on_end(self, span: ReadableSpan) -> None:
        """See ``SpanProcessor``; of encoded spans there may be several in one."""
        if isinstance(span, EncodedSpan):
            self._batch_processor.emit(span)
        else:
            super().on_end(span)


def hand_over(encoded: Sequence[bytes], resource: Resource, processor: SpanProcessor) -> None:
    """Give finished spans to a processor, several in one if it can take that.

    An exception of the processor is logged, and loses the spans that were given together.
    """
    if isinstance(processor, EncodedSpanProcessor):
        starts = range(0, len(encoded), _JOINED_MAX)
        encoded = [b"".join(encoded[start : start + _JOINED_MAX]) for start in starts]
    for each in encoded:
        try:
            processor.on_end(EncodedSpan(each, resource))
        except Exception:
            # A user's processor may raise anything; the next span may succeed.
            if _LINES.allows():
                _LOGGER.exception("spans of calls were lost")


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
