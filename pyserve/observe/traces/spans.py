"""Makes the spans of this process, and carries their context in and out."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from opentelemetry import trace
from opentelemetry.context import Context, attach, get_current
from opentelemetry.sdk.trace import SpanLimits, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.traces import IS_SAMPLED, OutgoingMetadata
from pyserve.observe.traces.served import (
    BAGGAGE,
    SCHEMA_URL,
    TRACE_CONTEXT,
    EncodedSpanProcessor,
    ProvidedSpan,
    ServedSpan,
    TracedCall,
    caller_context,
    decoded,
    hand_over,
)
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


# Takes the spans of finished calls from the native side, which makes them after the calls.
#
# One source has the calls that a table has routed: the span of a call's hop (a server's at the
# ingress, a client's at a handle), of each attempt at a replica, and of the times that it was
# parked. Another has the calls that a server has answered.

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
