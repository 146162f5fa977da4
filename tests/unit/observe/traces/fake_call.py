"""A sampled call without a server, in the place of a native one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.trace.v1 import trace_pb2

TRACE_ID, CALLER_ID = 7, 9
_UNSET, _ERROR = trace_pb2.Status.STATUS_CODE_UNSET, trace_pb2.Status.STATUS_CODE_ERROR


class FakeSpans:
    """Spans that have ended, in the place of ``ServedSpans`` and ``CallRecords``."""

    def __init__(self, *spans: bytes, without_spans: int = 0) -> None:
        self.waiting = deque(spans)
        self._without_spans = without_spans

    def take_spans(self, limit: int) -> Sequence[bytes]:
        return [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]

    def stats(self) -> dict[str, int]:
        return {"without_spans": self._without_spans}


@dataclass
class FakeCall:
    """A call whose span has that name, and one attribute.

    Attributes:
        encoded: How often its span was encoded.
    """

    name: str = "shop.Cart/Price"
    flags: str = "01"
    tracestate: str = ""
    baggage: str = ""
    encoded: int = field(default=0, init=False)
    span: Any = field(default=None, init=False)
    _spans: FakeSpans = field(default_factory=FakeSpans, init=False)
    _id: int = field(default=0, init=False)
    _begun_unix_ns: int = field(default=0, init=False)
    _is_taken_over: bool = field(default=False, init=False)
    _answer: tuple[int, int, str, int] | None = field(default=None, init=False)

    def trace_headers(self) -> tuple[str, str, str]:
        traceparent = f"00-{TRACE_ID:032x}-{CALLER_ID:016x}-{self.flags}"
        return traceparent, self.tracestate, self.baggage

    def begin_span(self, spans: FakeSpans, span_id: int, span: Any) -> None:
        self._spans, self._id, self.span = spans, span_id, span
        self._begun_unix_ns = time.time_ns()

    @property
    def has_open_span(self) -> bool:
        return self._answer is None

    def take_over_span(self) -> bool:
        self._is_taken_over |= self.has_open_span
        return self.has_open_span

    def end(self, code: int = 0, details: str = "", http_status: int = 0) -> None:
        """Answer the call."""
        if self._answer is None:
            self._answer = now_ns, *_ = time.time_ns(), code, details, http_status
            span, self.span = self.span, None
            if self._is_taken_over:
                span.on_call_end(now_ns, self.encode_span())
            else:
                self._spans.waiting.append(self.encode_span())

    def encode_span(self) -> bytes:
        self.encoded += 1
        end_unix_ns, code, details, http_status = self._answer or (0, 0, "", 0)
        scope_spans = trace_pb2.ScopeSpans()
        span = scope_spans.spans.add(
            trace_id=TRACE_ID.to_bytes(16),
            span_id=self._id.to_bytes(8),
            parent_span_id=CALLER_ID.to_bytes(8),
            name=self.name,
            kind=trace_pb2.Span.SPAN_KIND_SERVER,
            start_time_unix_nano=self._begun_unix_ns,
            end_time_unix_nano=end_unix_ns,
            status=trace_pb2.Status(code=_ERROR if code else _UNSET, message=details),
            flags=trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK,
        )
        said = {"pyserve.model_id": "big"}
        if end_unix_ns:
            status = "http.response.status_code" if http_status else "rpc.response.status_code"
            said[status] = str(http_status or code)
        for key, value in said.items():
            span.attributes.add(key=key).value.string_value = value
        return scope_spans.SerializeToString()
