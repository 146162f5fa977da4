"""Makes the spans of this process, and carries their context in and out."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context, attach, get_current
from opentelemetry.sdk.trace import SpanLimits, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

from pyserve.observe.traces.encoded import SCHEMA_URL, EncodedSpanProcessor, decoded, hand_over
from pyserve.observe.traces.sampled import IS_SAMPLED, OutgoingMetadata
from pyserve.observe.traces.served import (
    BAGGAGE,
    TRACE_CONTEXT,
    ProvidedSpan,
    ServedSpan,
    TracedCall,
    caller_context,
)
from pyserve.observe.traces.sources import SpanSources
from pyserve.version import version

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

Attributes = Mapping[str, str | int | float | bool]

# The native side has fewer attributes for any span of a call.
_ATTRIBUTES_MAX = 32
# Processors that do nothing when a span begins, and do not change it when it ends.
_BLIND = (BatchSpanProcessor, EncodedSpanProcessor, SimpleSpanProcessor)


class Processors(SynchronousMultiSpanProcessor):
    """The processors of pyserve's own provider.

    Attributes:
        are_blind: None of them looks at spans that have not ended.
        before_flush: Brings them what waits elsewhere.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.are_blind = True
        self.before_flush: Callable[[], object] | None = None

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """See ``SynchronousMultiSpanProcessor``."""
        super().add_span_processor(span_processor)
        self.are_blind = self.are_blind and type(span_processor) in _BLIND

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See ``SynchronousMultiSpanProcessor``."""
        if self.before_flush is not None:
            self.before_flush()
        return super().force_flush(timeout_millis)

    def take_encoded(self, spans: Sequence[bytes], resource: Resource) -> None:
        """Give spans of the native side to each."""
        for processor in self._span_processors:
            hand_over(spans, resource, processor)


class Spans:
    """The tracer of pyserve in this process.

    Args:
        provider: Makes the spans, and is where user code finds its tracers.
        processor: Takes those that were not made by the provider.

    Attributes:
        sources: Where finished spans come from that were not made here.
    """

    def __init__(self, provider: TracerProvider, processor: SpanProcessor) -> None:
        self.provider = provider
        self._processor = processor
        self.sources = SpanSources(self._take_encoded, provider.shutdown)
        self._tracer = provider.get_tracer("pyserve", version(), SCHEMA_URL)
        self._limits = SpanLimits()
        self._ours: Processors | None = None
        if isinstance(processor, Processors):
            processor.before_flush = self.sources.take_all
            # A provider that makes no spans or smaller ones makes each itself.
            if isinstance(self._tracer, Tracer) and not _can_cut(self._limits):
                self._ours = processor

    # --- what comes in and goes out -----------------------------------------------------------

    def serve(self, served: object, call: TracedCall) -> contextvars.Context:
        """Begin the span of a sampled call, and return the context of its code.

        Args:
            served: Gets the span at the end of the call: a ``_router.ServedSpans`` that is one of
                the sources.
            call: The call.
        """
        headers = call.trace_headers()
        if self._ours is not None and self._ours.are_blind:
            span_id, baggage = self.provider.id_generator.generate_span_id(), headers[2]
            span: Span = ServedSpan(call, span_id, self.provider.resource, self._ours, self._limits)
            call.begin_span(served, span_id, span)
            around = BAGGAGE.extract({"baggage": baggage}, Context()) if baggage else Context()
        else:
            around = caller_context(headers)
            span = self._begin_served(served, call, around)
        context = contextvars.copy_context()
        context.run(_enter, trace.set_span_in_context(span, around))
        return context

    def _begin_served(self, served: object, call: TracedCall, caller: Context) -> Span:
        provided = ProvidedSpan()
        # Its id and times are for the SDK to choose.
        call.begin_span(served, 1, provided)
        call.take_over_span()
        said = decoded(call.encode_span(), self.provider.resource)
        provided.span = self._tracer.start_span(
            said.name,
            caller,
            kind=SpanKind.SERVER,
            attributes=said.attributes,
            record_exception=False,
        )
        return provided.span

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

    def close(self, timeout_s: float) -> None:
        """Export what waits, for ``timeout_s`` at most. Idempotent."""
        self.sources.close(timeout_s)

    def _take_encoded(self, spans: Sequence[bytes]) -> None:
        if isinstance(self._processor, Processors):
            self._processor.take_encoded(spans, self.provider.resource)
        else:
            hand_over(spans, self.provider.resource, self._processor)


def end(span: Span, attributes: Attributes) -> None:
    """End a span; it has failed if an attribute is the type of an error."""
    span.set_attributes(attributes)
    if "error.type" in attributes:
        span.set_status(Status(StatusCode.ERROR))
    span.end()


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
