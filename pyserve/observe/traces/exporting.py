"""Who gets the spans: the provider of OpenTelemetry, its resource and its exporters."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from pyserve import working_folder
from pyserve.errors import OptionError
from pyserve.observe.traces.served import EncodedSpan, EncodedSpanProcessor
from pyserve.observe.traces.spans import Processors, Spans
from pyserve.version import version

if TYPE_CHECKING:
    from pyserve.config.telemetry import TracingSettings
    from pyserve.observe.traces.process import ProcessIdentity


# What ends with the process waits this long for a collector that does not answer. Arbitrary.
_EXIT_TIMEOUT_S = 2.0


def open_spans(settings: TracingSettings, identity: ProcessIdentity) -> Spans:
    """Make this process's provider, which user code finds as the global one.

    Where a script has set one of the SDK before, spans go there, and to its exporters.

    Raises:
        OptionError: The exporter's function cannot be found, or returns something else.
        Exception: What it raised.
    """
    present = trace.get_tracer_provider()
    if isinstance(present, TracerProvider):
        return Spans(present, present._active_span_processor)  # noqa: SLF001  # no other way in
    # Its own processors, so that spans of records can be handed over as they are.
    processors = Processors()
    for processor in _processors(settings):
        processors.add_span_processor(processor)
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sampling_ratio)),
        resource=_resource(identity),
        shutdown_on_exit=False,
        active_span_processor=processors,
    )
    trace.set_tracer_provider(provider)
    spans = Spans(provider, processors)
    # Not the provider's own, which waits for half a minute.
    atexit.register(functools.partial(spans.close, _EXIT_TIMEOUT_S))
    return spans


def _resource(identity: ProcessIdentity) -> Resource:
    found: dict[str, str | int] = {
        "service.name": identity.service,
        "service.instance.id": identity.instance,
        "service.namespace": identity.application,
        "service.version": version(),
        "host.name": identity.node,
        "pyserve.application": identity.application,
        "pyserve.deployment": identity.deployment,
        "pyserve.replica": identity.replica,
        "pyserve.node": identity.node,
        "process.pid": os.getpid(),
    }
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are the user's last word.
    told = OTELResourceDetector().detect().attributes
    ours = {name: value for name, value in found.items() if value != "" and name not in told}
    return Resource.create(ours)


def _processors(settings: TracingSettings) -> Sequence[SpanProcessor]:
    if settings.exporter is None:
        return (EncodedSpanProcessor(EncodedSpanExporter()),)
    return processors_of(settings.exporter)


def processors_of(import_path: str) -> Sequence[SpanProcessor]:
    """Return what a user's function makes: processors, exporters in processors of their own.

    Raises:
        OptionError: There is no such function, or it returns something else.
        Exception: What it raised.
    """
    module, _, name = import_path.partition(":")
    with working_folder.importable():
        try:
            make = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        except (ImportError, AttributeError) as error:
            raise OptionError(
                f"exporter_import_path {import_path!r} cannot be found: {error}"
            ) from error
        if not callable(make):
            raise OptionError(f"exporter_import_path {import_path!r} is no function: {make!r}")
        made: object = make()
    several = made if isinstance(made, Iterable) else (made,)
    return [_processor(import_path, each) for each in several]


def _processor(import_path: str, made: object) -> SpanProcessor:
    if isinstance(made, SpanProcessor):
        return made
    if isinstance(made, SpanExporter):
        return BatchSpanProcessor(made)
    raise OptionError(
        f"exporter_import_path {import_path!r} returned {type(made).__name__}; return a "
        f"SpanProcessor or a SpanExporter of opentelemetry.sdk.trace, or a list of them"
    )


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
