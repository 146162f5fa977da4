"""Spans that the native side has encoded, against OpenTelemetry's own encoder."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyserve.observe.traces.exporting import EncodedSpanExporter
from pyserve.observe.traces.served import EncodedSpan, EncodedSpanProcessor, hand_over
from tests.unit.observe.traces.test_recorded_calls import record_of

RESOURCE = Resource({"service.name": "Cart", "process.pid": 7}, "https://example.test/schema")
# So that the sum of two is one.
_TIMES = st.integers(0, 2**62)
_SIZES = st.integers(0, 2**63 - 1)


def _ids(length: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=length, max_size=length).filter(any)


_ATTEMPTS = st.tuples(
    st.text(max_size=20),
    _ids(8),
    _TIMES,
    st.integers(-1, 2**62),
    _TIMES,
    st.sampled_from(["first", "refused_before", "retry", "hedge"]),
    st.sampled_from(["ok", "failed", "refused", "late", "superseded"]),
)
_RECORDS = st.fixed_dictionaries(
    {
        "request_id": st.text(max_size=300),
        "trace_id": _ids(16),
        "span_id": _ids(8),
        "parent_id": st.just(b"") | _ids(8),
        "tracestate": st.sampled_from(["", "vendor=x", "a=1,b=2"]),
        "door": st.sampled_from(["grpc", "connect", "json", "http", "websocket", "handle"]),
        "method": st.sampled_from(["/shop.Cart/Price", "GET /", "BREW /tea", "PUT", ""]),
        "application": st.text(max_size=10),
        "deployment": st.text(max_size=10),
        "peer": st.sampled_from(
            ["ipv4:10.0.0.9:5000", "ipv6:[::1]:70", "[fe80::1%2]:70", "unix:", "", "no:where"]
        ),
        "model_id": st.text(max_size=10),
        "start_unix_ns": _TIMES,
        "duration_ns": _TIMES,
        "parked_ns": _TIMES,
        "first_byte_ns": st.integers(-1, 2**62),
        "code": st.integers(0, 255),
        "http_status": st.integers(0, 599),
        "refused": st.sampled_from(["", "queue_full"]),
        "answered_by": st.sampled_from(["replica", "ingress", "client"]),
        "reason": st.text(max_size=600),
        "request_bytes": _SIZES,
        "response_bytes": _SIZES,
        "explanation": st.text(max_size=2000),
        "attempts": st.lists(_ATTEMPTS, max_size=4),
    }
)


@pytest.fixture(scope="module")
def exporter() -> Any:
    found = EncodedSpanExporter(endpoint="http://127.0.0.1:1")
    yield found
    found.shutdown()


def spans_of(**fields: Any) -> list[EncodedSpan]:
    return [EncodedSpan(each, RESOURCE) for each in record_of(**fields).encode_spans()]


@given(_RECORDS)
def test_it_is_what_opentelemetrys_encoder_makes_of_the_same_span(
    exporter: EncodedSpanExporter, fields: dict[str, Any]
):
    spans = spans_of(**fields)

    assert len(spans) > len(fields["attempts"])
    # Without the exporter's way it is read, field by field, and encoded by OpenTelemetry.
    assert encode_spans(spans) == exporter._translate_data(spans)


def test_it_goes_together_with_spans_of_the_sdk(exporter: EncodedSpanExporter):
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    with provider.get_tracer("user").start_as_current_span("own work") as span:
        assert isinstance(span, ReadableSpan)
    kept.export([span])
    first, second, *_ = spans_of()

    request = exporter._translate_data([first, span, second])
    found = [
        (group.resource.attributes[0].value.string_value, scope.scope.name, each.name)
        for group in request.resource_spans
        for scope in group.scope_spans
        for each in scope.spans
    ]
    name = "shop.Cart/Price"
    expected = [("Cart", "user", "own work"), ("Cart", "pyserve", name), ("Cart", "pyserve", name)]
    assert expected == found


def test_it_is_not_decoded_on_its_way(exporter: EncodedSpanExporter):
    processor = EncodedSpanProcessor(exporter)
    (span, *_) = spans_of()
    processor.on_end(span)
    (other, *_) = spans_of()
    exporter._translate_data([other, span])  # The first tells what is said of the process.

    assert "_name" not in vars(span)
    assert "shop.Cart/Price" == span.name


def test_several_in_one_are_exported_as_each_of_them(exporter: EncodedSpanExporter):
    spans = spans_of()
    exporter._group = None  # What is said of the process is read of the first.
    joined = EncodedSpan(b"".join(each.scope_spans for each in spans), RESOURCE)

    assert len(spans) > 2
    assert encode_spans(spans) == exporter._translate_data([joined])


class Collecting(SpanExporter):
    """Keeps the encoded spans of each item."""

    def __init__(self) -> None:
        self.items: list[list[bytes]] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            assert isinstance(span, EncodedSpan)
            found = ScopeSpans.FromString(span.scope_spans).spans
            self.items.append([each.span_id for each in found])
        return SpanExportResult.SUCCESS


def test_all_are_exported_once_and_in_order_several_in_one():
    exporter = Collecting()
    processor = EncodedSpanProcessor(exporter)
    ids = [number.to_bytes(8) for number in range(1, 101)]
    spans = [spans_of(span_id=each, attempts=[], parked_ns=0)[0] for each in ids]
    hand_over([each.scope_spans for each in spans], RESOURCE, processor)
    assert processor.force_flush()

    assert ids == [each for item in exporter.items for each in item]
    assert (13, 8) == (len(exporter.items), max(map(len, exporter.items)))
    processor.shutdown()


def test_other_processors_get_each_by_itself():
    exporter = Collecting()
    spans = spans_of()
    hand_over([each.scope_spans for each in spans], RESOURCE, SimpleSpanProcessor(exporter))

    assert [1] * len(spans) == list(map(len, exporter.items))


def test_only_fields_of_spans_are_decoded():
    (span, *_) = spans_of()

    assert not hasattr(span, "no_such_thing")
    assert span.name == copy.copy(span).name


def test_a_call_that_is_not_sampled_has_none():
    assert [] == spans_of(is_sampled=False)
    assert [] == spans_of(trace_id=b"", span_id=b"", parent_id=b"")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"door": "window"}, "window"),
        ({"kept_for": "fun"}, "fun"),
        ({"trace_id": b"short"}, "trace_id"),
        ({"span_id": b"short"}, "span_id"),
    ],
)
def test_a_record_that_cannot_be_is_not_made(changes: dict[str, Any], says: str):
    with pytest.raises(ValueError, match=says):
        record_of(**changes)


def test_parked_spans_have_ids_of_their_own():
    raw = [trace_pb2.ScopeSpans.FromString(each.scope_spans).spans[0] for each in spans_of()]

    assert len(raw) == len({each.span_id for each in raw})
    assert ["parked", "parked"] == [each.name for each in raw if each.kind == 1]
