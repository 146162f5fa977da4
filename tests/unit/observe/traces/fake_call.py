"""A sampled call without a server, in the place of a native one."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry.proto.trace.v1 import trace_pb2

TRACE_ID, CALLER_ID = 7, 9
_UNSET, _ERROR = trace_pb2.Status.STATUS_CODE_UNSET, trace_pb2.Status.STATUS_CODE_ERROR


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

    def trace_headers(self) -> tuple[str, str, str]:
        traceparent = f"00-{TRACE_ID:032x}-{CALLER_ID:016x}-{self.flags}"
        return traceparent, self.tracestate, self.baggage

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
        self.encoded += 1
        scope_spans = trace_pb2.ScopeSpans()
        span = scope_spans.spans.add(
            trace_id=TRACE_ID.to_bytes(16),
            span_id=span_id.to_bytes(8),
            parent_span_id=CALLER_ID.to_bytes(8),
            name=self.name,
            kind=trace_pb2.Span.SPAN_KIND_SERVER,
            start_time_unix_nano=start_unix_ns,
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
