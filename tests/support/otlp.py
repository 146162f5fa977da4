"""A receiver of OpenTelemetry's spans over gRPC, as a collector is one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

SERVER = trace_pb2.Span.SpanKind.SPAN_KIND_SERVER
CLIENT = trace_pb2.Span.SpanKind.SPAN_KIND_CLIENT
INTERNAL = trace_pb2.Span.SpanKind.SPAN_KIND_INTERNAL


@dataclass(frozen=True, eq=False)
class ReceivedSpan:
    """One span, with what its process says of itself."""

    raw: trace_pb2.Span
    resource: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.raw.name

    @property
    def kind(self) -> int:
        return self.raw.kind

    @property
    def id(self) -> bytes:
        return self.raw.span_id

    @property
    def parent(self) -> bytes:
        return self.raw.parent_span_id

    @property
    def links(self) -> set[bytes]:
        return {link.span_id for link in self.raw.links}

    def __repr__(self) -> str:
        service = self.resource.get("service.name")
        return f"{service}: {self.name} {self.id.hex()} below {self.parent.hex() or 'nothing'}"


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps every span; its threads are grpcio's."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, _context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        found = [
            ReceivedSpan(span, _values(group.resource.attributes), _values(span.attributes))
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self._spans += found
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[ReceivedSpan]:
        """Return what has come so far."""
        with self._lock:
            return list(self._spans)

    def named(self, name: str, kind: int | None = None) -> list[ReceivedSpan]:
        """Return the spans of a name, and of a kind if one is given."""
        return [each for each in self.spans() if each.name == name and kind in (None, each.kind)]

    def environment(self) -> dict[str, str]:
        """Return what sends a mesh's spans here, soon after they end."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """Receive at a free port of the loopback until the block ends."""
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(2, thread_name_prefix="otlp"))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(grace=None).wait()
