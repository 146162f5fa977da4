"""Spans of the calls that the native side has routed, made of its records."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pyserve import _router
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.metrics import Scrape
from pyserve.observe.traces import served, spans
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.routing.records import CallRecords
from tests.support.waiting import wait_until
from tests.unit.observe.traces.conftest import Kept
from tests.unit.observe.traces.fake_call import FakeSpans

START = 1_700_000_000_000_000_000
MS = 1_000_000


@dataclass
class Record:
    """A call through the ingress that went well at its second replica."""

    request_id: str = "abc"
    kept_for: str = "sampled"
    trace_id: bytes = bytes(15) + b"\7"
    span_id: bytes = bytes(7) + b"\1"
    parent_id: bytes = bytes(7) + b"\2"
    tracestate: str = "vendor=x"
    is_sampled: bool = True
    door: str = "grpc"
    method: str = "/shop.Cart/Price"
    path: str = "/shop.Cart/Price"
    application: str = "shop"
    deployment: str = "Cart"
    peer: str = "ipv4:10.0.0.9:5000"
    model_id: str = ""
    start_unix_ns: int = START
    duration_ns: int = 100 * MS
    parked_ns: int = 30 * MS
    first_byte_ns: int = 90 * MS
    code: int = 0
    http_status: int = 0
    refused: str = ""
    answered_by: str = "replica"
    reason: str = ""
    request_bytes: int = 5
    response_bytes: int = 7
    explanation: str = ""
    attempts: list[Any] = field(
        default_factory=lambda: [
            ("r1", bytes(7) + b"\3", 20 * MS, -1, 30 * MS, "first", "refused"),
            ("r2", bytes(7) + b"\4", 40 * MS, 90 * MS, 99 * MS, "refused_before", "ok"),
        ]
    )


def record_of(**changes: Any) -> _router.CallRecord:
    return _router.CallRecord.of(Record(**changes))


def calls(*records: _router.CallRecord) -> FakeSpans:
    """Sampled calls that wait, as the native side keeps them."""
    return FakeSpans(*(span for record in records for span in record.encode_spans()))


def spans_of(kept: Kept, **changes: Any) -> dict[int, ReadableSpan]:
    kept.spans.sources.add(calls(record_of(**changes)))
    return {span.context.span_id: span for span in kept.spans_kept()}


def times_ms(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - START) // MS, (span.end_time - START) // MS


def test_a_call_is_a_server_span_with_its_attempts_below(kept: Kept):
    found = spans_of(kept)
    hop, first, second = found[1], found[3], found[4]

    assert {7} == {span.context.trace_id for span in found.values()}
    assert ("shop.Cart/Price", SpanKind.SERVER, (0, 100)) == (hop.name, hop.kind, times_ms(hop))
    assert hop.parent is not None
    assert (2, True) == (hop.parent.span_id, hop.parent.is_remote)
    assert "vendor=x" == hop.context.trace_state.to_header()
    for span, times in ((first, (20, 30)), (second, (40, 99))):
        assert span.parent is not None
        assert (1, SpanKind.CLIENT, times) == (span.parent.span_id, span.kind, times_ms(span))
    said = dict(hop.attributes or {})
    expected = {
        "rpc.system.name": "grpc",
        "rpc.method": "shop.Cart/Price",
        "rpc.response.status_code": "OK",
        "network.peer.address": "10.0.0.9",
        "network.peer.port": 5000,
        "pyserve.request_id": "abc",
        "pyserve.deployment": "Cart",
    }
    assert expected == {name: said.get(name) for name in expected}
    assert ("refused", "r2", "refused_before") == (
        (first.attributes or {})["error.type"],
        (second.attributes or {})["pyserve.replica"],
        (second.attributes or {})["pyserve.attempt.reason"],
    )
    assert [StatusCode.UNSET, StatusCode.ERROR, StatusCode.UNSET] == [
        each.status.status_code for each in (hop, first, second)
    ]


def test_an_answer_that_was_replaced_is_the_end_of_its_attempt_alone(kept: Kept):
    found = spans_of(kept, code=13, answered_by="ingress", reason="it has no JSON")
    hop, last = found[1], found[4]

    assert (StatusCode.ERROR, "it has no JSON") == (hop.status.status_code, hop.status.description)
    assert "INTERNAL" == (hop.attributes or {})["rpc.response.status_code"]
    assert StatusCode.UNSET == last.status.status_code
    assert "OK" == (last.attributes or {})["rpc.response.status_code"]


def test_parked_time_is_a_span_before_the_attempt_that_ended_it(kept: Kept):
    parked = [span for span in spans_of(kept).values() if span.name == "parked"]

    assert [(0, 20), (30, 40)] == sorted(times_ms(span) for span in parked)
    assert {1} == {span.parent.span_id for span in parked if span.parent is not None}


def test_a_handles_call_is_a_client_span(kept: Kept):
    hop = spans_of(kept, door="handle", parent_id=b"", code=14)[1]

    assert (SpanKind.CLIENT, None) == (hop.kind, hop.parent)
    assert (StatusCode.ERROR, "UNAVAILABLE") == (
        hop.status.status_code,
        (hop.attributes or {})["error.type"],
    )


@pytest.mark.parametrize(
    ("status", "server", "client"),
    [
        (200, StatusCode.UNSET, StatusCode.UNSET),
        (404, StatusCode.UNSET, StatusCode.ERROR),
        (500, StatusCode.ERROR, StatusCode.ERROR),
        # Its client has left.
        (499, StatusCode.ERROR, StatusCode.ERROR),
    ],
)
def test_plain_http_has_its_own_attributes(
    kept: Kept, status: int, server: StatusCode, client: StatusCode
):
    found = spans_of(kept, door="http", method="POST /shop", http_status=status)
    said = dict(found[1].attributes or {})

    assert ("POST /shop", server, client) == (
        found[1].name,
        found[1].status.status_code,
        found[4].status.status_code,
    )
    assert ("POST", "/shop", status) == (
        said["http.request.method"],
        said["http.route"],
        said["http.response.status_code"],
    )
    assert "rpc.method" not in said


def test_calls_that_are_kept_for_other_reasons_have_no_span(kept: Kept):
    assert {} == spans_of(kept, is_sampled=False)


def test_all_that_waits_is_handed_over_however_much_it_is(kept: Kept):
    kept.spans.sources.add(calls(*[record_of(attempts=[], parked_ns=0)] * 2_000))

    assert 2_000 == len(kept.spans_kept())


def test_they_are_handed_over_by_themselves(kept: Kept):
    waiting = calls(record_of())
    kept.spans.sources.add(waiting)
    wait_until(lambda: not waiting.waiting, 20)

    assert 5 == len(kept.spans_kept())


def test_one_that_is_removed_has_handed_over_what_it_had(kept: Kept):
    waiting = calls(record_of())
    kept.spans.sources.add(waiting)
    kept.spans.sources.remove(waiting)
    assert 5 == len(kept.spans_kept())
    assert not waiting.waiting
    waiting.waiting.append(b"nobody takes it")

    assert 5 == len(kept.spans_kept())


def test_removing_one_waits_for_no_processor(kept: Kept):
    may_end, is_there = threading.Event(), threading.Event()

    class Waiting(SimpleSpanProcessor):
        def on_end(self, _span: ReadableSpan) -> None:
            is_there.set()
            assert may_end.wait(20)

    kept.provider.add_span_processor(Waiting(InMemorySpanExporter()))
    kept.spans.sources.add(calls(record_of()))
    assert is_there.wait(20)
    removing = threading.Thread(target=kept.spans.sources.remove, args=(FakeSpans(),))
    removing.start()
    removing.join(10)
    is_stuck = removing.is_alive()
    may_end.set()

    assert not is_stuck


def test_a_child_has_nothing_of_its_parent(kept: Kept):
    waiting = calls(record_of())
    kept.spans.sources.add(waiting)
    count = len(kept.spans_kept())
    waiting.waiting.append(b"the parent's")
    with kept.spans.sources._taking:  # As when its thread is at it while another one forks.
        child = os.fork()
        if child == 0:
            PROCESS_TRACING.leave_to_parent()
            os._exit(0 if count == len(kept.spans_kept()) else 1)
        waiting.waiting.clear()
    assert (child, 0) == os.waitpid(child, 0)


def test_what_waits_when_it_is_closed_is_handed_over(kept: Kept):
    waiting = calls(record_of())
    kept.spans.sources.add(waiting)
    kept.spans.close(20.0)

    assert not waiting.waiting


def test_calls_whose_spans_nobody_has_taken_in_time_are_told_once(
    kept: Kept, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(spans, "_LINES", LogRateLimit())
    kept.spans.sources.add(FakeSpans(without_spans=7))
    kept.spans.sources.take_all()
    kept.spans.sources.take_all()

    assert 1 == caplog.text.count("7 sampled calls have no spans")


def test_a_processor_that_fails_costs_one_span_only(
    kept: Kept, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(served, "_LINES", LogRateLimit())

    class FailsAtFirst(SimpleSpanProcessor):
        made = 0

        def on_end(self, _span: ReadableSpan) -> None:
            self.made += 1
            if self.made == 1:
                raise OSError("no space")

    processor = FailsAtFirst(InMemorySpanExporter())
    kept.provider.add_span_processor(processor)
    kept.spans.sources.add(calls(record_of()))

    assert (5, 5) == (len(kept.spans_kept()), processor.made)
    assert "no space" in caplog.text


def test_records_and_spans_that_were_lost_are_counted(kept: Kept, monkeypatch: pytest.MonkeyPatch):
    found = CallRecords(samples_root=True)
    counts = {"recorded": 0, "dropped": 0, "without_spans": 3}
    monkeypatch.setattr(found, "native", SimpleNamespace(stats=lambda: counts))
    scrape = Scrape({"replica": "other"})
    found.add_metrics(scrape, caller="shop/Cart", caller_id="Cart#1")

    labels = {"caller": "shop/Cart", "caller_id": "Cart#1"}
    assert {
        "pyserve_call_records": (0, labels),
        "pyserve_call_records_dropped": (0, labels),
        "pyserve_call_spans_dropped": (3, labels),
    } == {each.name: (each.samples[0].value, each.samples[0].labels) for each in scrape.families()}
