"""Makes the spans of this process, and carries their context in and out."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pyserve.observe.traces.process import IS_SAMPLED, OutgoingMetadata
from pyserve.observe.traces.semantics import SCHEMA_URL, Attributes, http_end, rpc_end
from pyserve.version import version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

CARRIED = ("traceparent", "tracestate", "baggage")
_TRACE_CONTEXT = TraceContextTextMapPropagator()
_BAGGAGE = W3CBaggagePropagator()


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

    # --- what comes in and goes out -----------------------------------------------------------

    def serve(
        self, carrier: Mapping[str, str], name: str, attributes: Attributes
    ) -> tuple[ServerSpan, contextvars.Context]:
        """Begin the span of a call that came in, and return it with the context of its code.

        Args:
            carrier: ``traceparent``, ``tracestate`` and ``baggage``, as far as they came.
            name: Of the span.
            attributes: Of the span.
        """
        caller = _BAGGAGE.extract(carrier, _TRACE_CONTEXT.extract(carrier, Context()))
        span = self._tracer.start_span(
            name, caller, kind=SpanKind.SERVER, attributes=attributes, record_exception=False
        )
        context = contextvars.copy_context()
        context.run(_enter, trace.set_span_in_context(span, caller))
        return ServerSpan(span), context

    def outgoing(self) -> OutgoingMetadata:
        """Return the metadata of a call that this code makes, none where it is in no span.

        A script's own span may not be sampled; then the call must not begin a trace either.
        """
        if not trace.get_current_span().get_span_context().is_valid:
            return ()
        carrier: dict[str, str] = {}
        here = get_current()
        _TRACE_CONTEXT.inject(carrier, here)
        _BAGGAGE.inject(carrier, here)
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

    def hand_over(self, spans: Iterable[ReadableSpan]) -> None:
        """Give finished spans to the exporters."""
        for span in spans:
            self._processor.on_end(span)

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

    __slots__ = ("is_ended", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.is_ended = False

    def end_rpc(self, number: int, details: str) -> None:
        """End with a status of gRPC."""
        self._end(rpc_end(number), details)

    def end_http(self, status: int) -> None:
        """End with the status of a head that was followed by the whole body."""
        self._end(http_end(status), "")

    def fail(self, error: BaseException) -> None:
        """Note what user code has raised; the end follows."""
        if not self.is_ended:
            self.span.record_exception(error)

    def _end(self, attributes: Attributes, details: str) -> None:
        if not self.is_ended:
            self.is_ended = True
            end(self.span, attributes, details)


def end(span: Span, attributes: Attributes, details: str = "") -> None:
    """End a span; it has failed if an attribute is the type of an error."""
    span.set_attributes(attributes)
    if "error.type" in attributes:
        span.set_status(Status(StatusCode.ERROR, details or None))
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
