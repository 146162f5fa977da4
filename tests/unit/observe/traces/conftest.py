"""Spans of this process, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.observe.traces.spans import Processors, Spans
from tests.unit.observe.traces.fake_call import FakeSpans


class Looking(SpanProcessor):
    """Looks at each span when it begins, so that all are made in full."""

    def on_start(self, span: Span, parent_context: object = None) -> None:
        assert span.name


class Kept:
    """The spans that were exported, by name.

    Args:
        is_watched: A processor wants to see spans when they begin.
    """

    def __init__(self, *, is_watched: bool) -> None:
        self._exporter = InMemorySpanExporter()
        processors = Processors()
        processors.add_span_processor(SimpleSpanProcessor(self._exporter))
        if is_watched:
            processors.add_span_processor(Looking())
        self.provider = TracerProvider(shutdown_on_exit=False, active_span_processor=processors)
        self.spans = Spans(self.provider, processors)
        self.served = FakeSpans()
        self.spans.sources.add(self.served)

    def names(self) -> list[str]:
        return [span.name for span in self.spans_kept()]

    def spans_kept(self) -> tuple[ReadableSpan, ...]:
        assert self.provider.force_flush()
        return self._exporter.get_finished_spans()

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans_kept() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.all(name)
        assert 1 == len(found), f"{len(found)} spans {name!r} among {self.names()}"
        return found[0]


@pytest.fixture(params=["watched", "unwatched"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """This process traces, until the test ends."""
    found = Kept(is_watched=request.param == "watched")
    monkeypatch.setattr(PROCESS_TRACING, "spans", found.spans)
    yield found
    found.spans.close(1.0)
