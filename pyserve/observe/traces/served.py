"""The span of a call that came in, which is hardly more than a number until somebody wants more.

Most spans are never looked at: user code adds nothing to them, and children need their context
only. So the native side encodes them at the end of their calls. One that is read or added to is
made in full at that moment, and is then a span of the SDK like any other.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanLimits, SpanProcessor
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pyserve.observe.traces.encoded import decoded

TRACE_CONTEXT, BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()
"""What carries the context of a call from process to process."""

# Of the caller's, those that are a span's own too.
_FLAGS = TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID


class TracedCall(Protocol):
    """What is used of a sampled ``_router.ServerCall``."""

    def trace_headers(self) -> tuple[str, str, str]:
        """Return ``traceparent``, ``tracestate`` and ``baggage``."""

    def encode_span(
        self,
        span_id: int,
        start_unix_ns: int,
        *,
        end_unix_ns: int = 0,
        code: int = 0,
        http_status: int = 0,
        details: str = "",
    ) -> bytes:
        """Return the call's span, in the words of OTLP."""


def caller_context(trace_headers: tuple[str, str, str]) -> Context:
    """Return what came in: the caller's span and its baggage."""
    names = ("traceparent", "tracestate", "baggage")
    carrier = {name: value for name, value in zip(names, trace_headers, strict=True) if value}
    return BAGGAGE.extract(carrier, TRACE_CONTEXT.extract(carrier, Context()))


class ServedSpan(Span):
    """Begins now.

    Args:
        call: The native call.
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
        self._begun_unix_ns = time.time_ns()
        self._own_context: SpanContext | None = None
        self._encoded_end: bytes | None = None

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
        return self._encoded_end is None and (not self._is_made() or super().is_recording())

    def end_unseen(
        self, now_unix_ns: int, code: int, details: str, http_status: int
    ) -> bytes | None:
        """End it as the native side sees it, and return that; ``None`` if it was made in full."""
        with self._making:
            if self._is_made():
                return None
            self._encoded_end = self._call.encode_span(
                self._id,
                self._begun_unix_ns,
                end_unix_ns=now_unix_ns,
                code=code,
                http_status=http_status,
                details=details,
            )
            return self._encoded_end

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
        encoded = self._encoded_end or self._call.encode_span(self._id, self._begun_unix_ns)
        said = decoded(encoded, resource)
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
        self._start_time = self._begun_unix_ns
        # Of one that has ended, and is read late.
        self._status, self._end_time = said.status, said.end_time


class _Made(Span):
    """Has the fields that the SDK's constructor sets."""


_FIELDS = frozenset(vars(_Made("", SpanContext(1, 1, is_remote=False), limits=SpanLimits())))
