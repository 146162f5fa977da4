"""The span of a call that came in, which is hardly more than a number until somebody wants more.

Most spans are never looked at: user code adds nothing to them, and children need their context
only. The native side ends and encodes those: they are bytes for the exporter, decoded for other
readers on demand. One that is read or added to is made in full at that moment, and is then a span
of the SDK like any other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanLimits, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pyserve.observe.failures import format_from_user_code, text_of
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.version import version

TRACE_CONTEXT, BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()
"""What carries the context of a call from process to process."""

# The attributes that the end of a call adds to its span.
_ERROR_TYPE = "error.type"
_END_ATTRIBUTES = ("rpc.response.status_code", "http.response.status_code", _ERROR_TYPE)
_REFUSALS = 400
"""From this status of HTTP on, an answer says by itself that something went wrong."""
# Of the caller's, those that are a span's own too.
_FLAGS = TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID


class TracedCall(Protocol):
    """The part of a sampled ``_router.ServerCall`` that is used here."""

    def trace_headers(self) -> tuple[str, str, str]:
        """Return ``traceparent``, ``tracestate`` and ``baggage``."""

    def begin_span(self, spans: Any, span_id: int, span: Any) -> None:
        """Begin the call's span; ``spans`` gets it at the end of the call."""

    @property
    def has_open_span(self) -> bool:
        """Whether it has not ended."""

    def take_over_span(self) -> bool:
        """Let ``span.on_call_end`` end it; ``False``: it has ended."""

    def encode_span(self) -> bytes:
        """Return it as it stands, in the words of OTLP."""


def caller_context(trace_headers: tuple[str, str, str]) -> Context:
    """Return what came in: the caller's span and its baggage."""
    names = ("traceparent", "tracestate", "baggage")
    carrier = {name: value for name, value in zip(names, trace_headers, strict=True) if value}
    return BAGGAGE.extract(carrier, TRACE_CONTEXT.extract(carrier, Context()))


class ServedSpan(Span):
    """One that the native side ends, unless it has been made in full.

    Args:
        call: The native call, whose span it is.
        span_id: Of the span.
        resource, processor, limits: Of the provider.
    """

    _making = threading.RLock()

    def __init__(
        self,
        call: TracedCall,
        span_id: int,
        resource: Resource,
        processor: SpanProcessor,
        limits: SpanLimits,
    ) -> None:
        # The base's own constructor is called when there is need.
        self._call, self._id = call, span_id
        self._provided = resource, processor, limits
        self._own_context: SpanContext | None = None
        self._failed_by = ""

    def get_span_context(self) -> SpanContext:
        """See ``Span``."""
        if self._own_context is None:
            caller = self._caller()
            flags = TraceFlags(caller.trace_flags & _FLAGS)
            self._own_context = SpanContext(
                caller.trace_id,
                self._id,
                is_remote=False,
                trace_flags=flags,
                trace_state=caller.trace_state,
            )
        return self._own_context

    @property
    def context(self) -> SpanContext:
        """See ``ReadableSpan``."""
        return self.get_span_context()

    def is_recording(self) -> bool:
        """See ``Span``."""
        return super().is_recording() if self._is_made() else self._call.has_open_span

    def fail(self, error: BaseException) -> None:
        """Note what user code has raised."""
        self._failed_by = record_failure(self, error)

    def on_call_end(self, unix_ns: int, encoded: bytes) -> None:
        """End it, made in full, with what the native side says of the answer."""
        with self._making:
            pass  # Another thread may be at it still. Processors are the user's, and keep no lock.
        _end_as(self, unix_ns, decoded(encoded, self._provided[0]), self._failed_by)

    def _caller(self) -> SpanContext:
        context = caller_context(self._call.trace_headers())
        return trace.get_current_span(context).get_span_context()

    def _is_made(self) -> bool:
        return "_record_end_metrics" in self.__dict__  # The last of all.

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        with self._making:
            if name not in self.__dict__:
                self._make()
        return self.__dict__[name]

    def _make(self) -> None:
        resource, processor, limits = self._provided
        is_open = self._call.take_over_span()
        said = decoded(self._call.encode_span(), resource)
        super().__init__(
            said.name,
            self.get_span_context(),
            self._caller(),
            resource=resource,
            attributes=said.attributes,
            kind=said.kind,
            span_processor=processor,
            record_exception=False,
            limits=limits,
            instrumentation_scope=said.instrumentation_scope,
        )
        self._start_time = said.start_time
        if not is_open:  # It has ended, and is read late.
            self._status, self._end_time = said.status, said.end_time


class ProvidedSpan:
    """Stands for a span of the SDK towards its call.

    Attributes:
        span: The span, once the SDK has made it.
    """

    span: trace.Span = trace.INVALID_SPAN
    _failed_by = ""

    def fail(self, error: BaseException) -> None:
        """Note what user code has raised."""
        self._failed_by = record_failure(self.span, error)

    def on_call_end(self, unix_ns: int, encoded: bytes) -> None:
        """End it with what the native side says of the answer."""
        _end_as(self.span, unix_ns, decoded(encoded, Resource.get_empty()), self._failed_by)


def record_failure(span: trace.Span, error: BaseException) -> str:
    """Make an event of it, with the frames that its author can act upon; return its type."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}"
    if span.is_recording():
        # As the SDK's own, which reads attributes and texts that may be code of the user's.
        said = {
            "exception.type": name,
            "exception.message": text_of(error),
            "exception.stacktrace": format_from_user_code(error),
            "exception.escaped": "False",
        }
        span.add_event("exception", said)
    return name


def _end_as(span: trace.Span, unix_ns: int, ended: ReadableSpan, failed_by: str) -> None:
    said = ended.attributes or {}
    span.set_attributes({key: said[key] for key in _END_ATTRIBUTES if key in said})
    status: object = said.get("http.response.status_code")
    if failed_by and isinstance(status, int) and status < _REFUSALS:
        # The answer had begun as one that goes well: event streams, WebSockets.
        span.set_attribute(_ERROR_TYPE, failed_by)
        span.set_status(trace.StatusCode.ERROR)
    else:
        span.set_status(ended.status)
    span.end(unix_ns)


class _Made(Span):
    """Has the fields that the SDK's constructor sets."""


_FIELDS = frozenset(vars(_Made("", SpanContext(1, 1, is_remote=False), limits=SpanLimits())))


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
        if name not in _READABLE_FIELDS:
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


_READABLE_FIELDS = frozenset(vars(ReadableSpan("", resource=Resource.get_empty())))


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
