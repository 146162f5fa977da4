"""OpenTelemetry's exporter, for spans that the native side has encoded already."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.sdk.trace import ReadableSpan

from pyserve.observe.traces.encoded import EncodedSpan


class EncodedSpanExporter(OTLPSpanExporter):
    """Sends encoded spans by OTLP over gRPC, together with spans that the SDK has made.

    All encoded spans are of one process, and so of one resource. OpenTelemetry does not promise to
    keep the method that is overridden here. Without it encoded spans are decoded and encoded again,
    which is equally correct and costs ten times as much.
    """

    _group: ResourceSpans | None = None

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        encoded = [span for span in data if isinstance(span, EncodedSpan)]
        request = super()._translate_data(
            [span for span in data if not isinstance(span, EncodedSpan)]
        )
        if encoded:
            group = request.resource_spans.add()
            group.CopyFrom(self._group_of(encoded[0]))
            group.scope_spans[0].MergeFromString(b"".join(span.scope_spans for span in encoded))
        return request

    def _group_of(self, span: EncodedSpan) -> ResourceSpans:
        """Return the message that describes the process and pyserve, without spans."""
        if self._group is None:
            (self._group,) = super()._translate_data([span]).resource_spans
            del self._group.scope_spans[0].spans[:]
        return self._group
