"""Makes the spans of this process, and carries their context in and out."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context, attach, get_current
from opentelemetry.sdk.trace import SpanLimits, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

from pyserve.observe.places import format_from_user_code
from pyserve.observe.traces.encoded import (
    SCHEMA_URL,
    EncodedSpan,
    EncodedSpanProcessor,
    decoded,
)
from pyserve.observe.traces.process import IS_SAMPLED, OutgoingMetadata
from pyserve.observe.traces.served import (
    BAGGAGE,
    TRACE_CONTEXT,
    ServedSpan,
    TracedCall,
    caller_context,
)
from pyserve.version import version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

Attributes = Mapping[str, str | int | float | bool]

# What its end adds to the span of a call.
_END_ATTRIBUTES = ("rpc.response.status_code", "http.response.status_code", "error.type")
# The native side has fewer attributes for any span of a call.
_ATTRIBUTES_MAX = 32
# Processors that do nothing when a span begins, and take it as it is when it ends.
_BLIND = (BatchSpanProcessor, EncodedSpanProcessor, SimpleSpanProcessor)


class Processors(SynchronousMultiSpanProcessor):
    """The processors of pyserve's own provider.

    Attributes:
        are_blind: None of them looks at spans that have not ended.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.are_blind = True

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """See ``SynchronousMultiSpanProcessor``."""
        super().add_span_processor(span_processor)
        self.are_blind = self.are_blind and type(span_processor) in _BLIND


class Spans:
    """The tracer of pyserve in this process.

    Args:
        provider: Makes the spans, and is where user code finds its tracers.
        processor: Takes those that were not made by the provider.
    """

    def __init__(self, provider: TracerProvider, processor: SpanProcessor) -> None:
        self.provider = provider
        self._processor = processor
        self._is_closing, self._is_closed = threading.Event(), threading.Event()
        # There from the beginning: an interpreter that ends lets no thread start.
        threading.Thread(target=self._close, name="pyserve-spans", daemon=True).start()
        self._tracer = provider.get_tracer("pyserve", version(), SCHEMA_URL)
        self._limits = SpanLimits()
        self._ours: Processors | None = None
        # A provider that is not ours, or makes no spans or smaller ones, makes each itself.
        if isinstance(processor, Processors) and isinstance(self._tracer, Tracer):
            self._ours = None if _can_cut(self._limits) else processor

    # --- what comes in and goes out -----------------------------------------------------------

    def serve(self, call: TracedCall) -> tuple[ServerSpan, contextvars.Context]:
        """Begin the span of a sampled call, and return it with the context of its code."""
        headers = call.trace_headers()
        if self._ours is not None and self._ours.are_blind:
            span_id, baggage = self.provider.id_generator.generate_span_id(), headers[2]
            span: Span = ServedSpan(call, span_id, self.provider.resource, self._ours, self._limits)
            around = BAGGAGE.extract({"baggage": baggage}, Context()) if baggage else Context()
        else:
            around = caller_context(headers)
            span = self._begin_served(call, around)
        context = contextvars.copy_context()
        context.run(_enter, trace.set_span_in_context(span, around))
        return ServerSpan(self, call, span), context

    def _begin_served(self, call: TracedCall, caller: Context) -> Span:
        # Its id and times are for the SDK to choose.
        said = decoded(call.encode_span(1, 1), self.provider.resource)
        return self._tracer.start_span(
            said.name,
            caller,
            kind=SpanKind.SERVER,
            attributes=said.attributes,
            record_exception=False,
        )

    def outgoing(self) -> OutgoingMetadata:
        """Return the metadata of a call that this code makes, none where it is in no span.

        A script's own span may not be sampled; then the call must not begin a trace either.
        """
        if not trace.get_current_span().get_span_context().is_valid:
            return ()
        carrier: dict[str, str] = {}
        here = get_current()
        TRACE_CONTEXT.inject(carrier, here)
        BAGGAGE.inject(carrier, here)
        return tuple(carrier.items())

    # --- work inside ------------------------------------------------------------------------

    def begin(
        self,
        name: str,
        parent: Span,
        *,
        links: Sequence[Span] = (),
        attributes: Attributes | None = None,
        start_unix_ns: int | None = None,
    ) -> Span:
        """Begin a span of work in this process."""
        return self._tracer.start_span(
            name,
            trace.set_span_in_context(parent, Context()),
            attributes=attributes,
            links=[Link(each.get_span_context()) for each in links],
            start_time=start_unix_ns,
            record_exception=False,
        )

    # --- spans that were made elsewhere -----------------------------------------------------

    def hand_over(self, encoded: bytes) -> None:
        """Give a finished span to the exporters; see ``EncodedSpan``."""
        self._processor.on_end(EncodedSpan(encoded, self.provider.resource))

    def close(self, timeout_s: float) -> None:
        """Export what waits, for ``timeout_s`` at most. Idempotent."""
        self._is_closing.set()
        self._is_closed.wait(timeout_s)

    def _close(self) -> None:
        # In a thread, since a collector that does not answer holds whoever shuts down for long.
        self._is_closing.wait()
        try:
            self.provider.shutdown()
        finally:
            self._is_closed.set()


class ServerSpan:
    """The span of a call that came in, until it is answered; any thread may end it, once."""

    __slots__ = ("_call", "_is_ended", "_spans", "span")

    def __init__(self, spans: Spans, call: TracedCall, span: Span) -> None:
        self._spans, self._call = spans, call
        self.span = span
        self._is_ended = False

    def fail(self, error: BaseException) -> None:
        """Note what user code has raised; the end follows."""
        if not self._is_ended:
            record_failure(self.span, error)

    def end(self, code: int, details: str, http_status: int) -> None:
        """End with a status of gRPC; or, if that is OK, with one of HTTP unless it is 0."""
        if self._is_ended:
            return
        self._is_ended = True
        span, now_ns = self.span, time.time_ns()
        if isinstance(span, ServedSpan):
            encoded = span.end_unseen(now_ns, code, details, http_status)
            if encoded is not None:
                self._spans.hand_over(encoded)
                return
        encoded = self._call.encode_span(
            1, 1, end_unix_ns=now_ns, code=code, http_status=http_status, details=details
        )
        said = decoded(encoded, self._spans.provider.resource)
        attributes = said.attributes or {}
        span.set_attributes({key: attributes[key] for key in _END_ATTRIBUTES if key in attributes})
        span.set_status(said.status)
        span.end(now_ns)


def end(span: Span, attributes: Attributes) -> None:
    """End a span; it has failed if an attribute is the type of an error."""
    span.set_attributes(attributes)
    if "error.type" in attributes:
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def record_failure(span: Span, error: BaseException) -> None:
    """Make an event of what user code has raised, with the frames that its author can act upon."""
    if span.is_recording():
        trace_text = format_from_user_code(error)
        span.record_exception(error, {"exception.stacktrace": trace_text})


def current() -> Span:
    """Return the span of this code, which may be the user's own."""
    return trace.get_current_span()


def entered(span: Span, context: contextvars.Context) -> contextvars.Context:
    """Let ``span`` be the one of the code that will run in ``context``, and return that."""
    context.run(_enter, trace.set_span_in_context(span, Context()))
    return context


def left(context: contextvars.Context) -> None:
    """Let code that will run in ``context``, a copy of another's, belong to no traced call."""
    context.run(attach, Context())
    context.run(IS_SAMPLED.set, False)


def link(span: Span, to: SpanContext, attributes: Attributes | None = None) -> None:
    """Link a span that has not ended to another one."""
    if span.is_recording():
        span.add_link(to, attributes)


def _enter(context: Context) -> None:
    attach(context)
    IS_SAMPLED.set(True)


def _can_cut(limits: SpanLimits) -> bool:
    counts = limits.max_span_attributes
    has_length = limits.max_span_attribute_length is not None
    return has_length or (counts is not None and counts < _ATTRIBUTES_MAX)
