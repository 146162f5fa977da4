"""Who gets the spans of a process, and what they say of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyserve.config.telemetry import TracingSettings
from pyserve.errors import OptionError
from pyserve.observe.traces.exporting import open_spans, processors_of
from pyserve.observe.traces.process import ProcessIdentity, Tracing
from pyserve.observe.traces.spans import Spans

HERE = __name__
IDENTITY = ProcessIdentity(
    service="Cart",
    instance="Cart#1",
    application="shop",
    deployment="Cart",
    replica="Cart#1",
    node="here",
)
KEPT = InMemorySpanExporter()
WORDS = "no exporter"


def one_exporter() -> SpanExporter:
    return KEPT


def several() -> list[Any]:
    return [SimpleSpanProcessor(KEPT), ConsoleSpanExporter()]


def something_else() -> object:
    return object()


def fails() -> SpanExporter:
    raise ConnectionError("no such host")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what opens spans without changing what is global."""
    made: list[Spans] = []
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: None)
    monkeypatch.setattr(trace, "set_tracer_provider", lambda _provider: None)

    def open_with(**settings: Any) -> Spans:
        made.append(open_spans(TracingSettings(enabled=True, **settings), IDENTITY))
        return made[-1]

    yield open_with
    for spans in made:
        spans.close(1.0)
    KEPT.clear()


def test_spans_say_who_made_them(opened: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    said = opened(exporter=f"{HERE}:several").provider.resource.attributes

    expected = {
        "service.name": "Cart",
        "service.namespace": "shop",
        "service.instance.id": "Cart#1",
        "pyserve.deployment": "Cart",
        "pyserve.replica": "Cart#1",
        "pyserve.node": "here",
    }
    assert expected == {name: said[name] for name in expected}


def test_the_environment_has_the_last_word(opened: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    said = opened(exporter=f"{HERE}:one_exporter").provider.resource.attributes

    assert ("our shop", "test", "Cart") == (
        said["service.name"],
        said["deployment.environment.name"],
        said["pyserve.deployment"],
    )


def test_what_a_function_returns_may_be_exporters_or_processors():
    first, second = processors_of(f"{HERE}:several")
    (third,) = processors_of(f"{HERE}.one_exporter".replace(".one", ":one"))

    assert [SimpleSpanProcessor, BatchSpanProcessor, BatchSpanProcessor] == [
        type(each) for each in (first, second, third)
    ]
    for each in (second, third):
        each.shutdown()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no.such.module:export", "cannot be found"),
        (f"{HERE}:no_such_function", "cannot be found"),
        (f"{HERE}:WORDS", "is no function"),
        (f"{HERE}:something_else", "returned object"),
    ],
)
def test_what_is_no_exporter_is_told(path: str, says: str):
    with pytest.raises(OptionError, match=says):
        processors_of(path)


@pytest.mark.parametrize("path", [f"{HERE}:fails", "no.such.module:export"])
def test_a_process_serves_on_without_its_exporter(path: str, caplog: pytest.LogCaptureFixture):
    tracing = Tracing()
    tracing.start(TracingSettings(enabled=True, exporter=path), IDENTITY)

    assert tracing.spans is None
    assert "makes no spans" in caplog.text


def test_a_provider_of_the_scripts_own_is_used(monkeypatch: pytest.MonkeyPatch):
    own = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: own)
    spans = open_spans(TracingSettings(enabled=True, exporter=f"{HERE}:fails"), IDENTITY)

    assert own is spans.provider
    spans.close(1.0)


def test_a_process_that_does_not_trace_loads_no_sdk():
    program = (
        "import sys, pyserve\n"
        "from pyserve.config.telemetry import TracingSettings\n"
        "from pyserve.observe.traces.process import PROCESS_TRACING, ProcessIdentity\n"
        "import pyserve.replica.worker, pyserve.routing.in_process\n"
        "PROCESS_TRACING.start(TracingSettings(), ProcessIdentity(service='a', instance='b'))\n"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )

    assert "[]" == answer.stdout.strip()
