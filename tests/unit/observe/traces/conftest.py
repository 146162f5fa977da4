"""Spans of this process, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.observe.traces.spans import Spans


class Kept:
    """What has been exported, by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        processor = SimpleSpanProcessor(self._exporter)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(processor)
        self.spans = Spans(self.provider, processor)

    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]

    def spans_kept(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.all(name)
        assert 1 == len(found), f"{len(found)} spans {name!r} among {self.names()}"
        return found[0]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """This process traces, until the test ends."""
    found = Kept()
    monkeypatch.setattr(PROCESS_TRACING, "spans", found.spans)
    yield found
    found.spans.close(1.0)
