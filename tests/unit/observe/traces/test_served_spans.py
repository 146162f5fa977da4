"""The span of a call, before and after somebody looks at it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.environment_variables import (
    OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT,
    OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT,
)
from opentelemetry.sdk.trace import ReadableSpan, Span

from pyserve.observe.traces.served import EncodedSpan
from tests.support.waiting import wait_until
from tests.unit.observe.traces.conftest import Kept
from tests.unit.observe.traces.fake_call import CALLER_ID, TRACE_ID, FakeCall


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(is_watched=False)


def served(kept: Kept, call: FakeCall | None = None) -> tuple[FakeCall, Span]:
    """Begin a call's span; return the call and what user code sees."""
    call = call or FakeCall()
    span = kept.spans.serve(kept.served, call).run(trace.get_current_span)
    assert isinstance(span, Span)
    return call, span


def test_a_span_that_nobody_looks_at_is_encoded_once(kept: Kept):
    call, span = served(kept)
    assert (True, 0) == (span.is_recording(), call.encoded)
    call.end()

    (found,) = kept.spans_kept()
    assert 1 == call.encoded
    assert isinstance(found, EncodedSpan)
    assert not span.is_recording()
    assert span.get_span_context().span_id == found.context.span_id


def test_children_and_calls_need_its_context_only(kept: Kept):
    call = FakeCall(tracestate="vendor=x", baggage="tenant=blue")
    context = kept.spans.serve(kept.served, call)

    def child() -> None:
        with kept.provider.get_tracer("user").start_as_current_span("child"):
            pass

    context.run(child)
    sent = dict(context.run(kept.spans.outgoing))
    assert "blue" == context.run(baggage.get_baggage, "tenant")
    assert 0 == call.encoded
    call.end()
    own = kept.one("shop.Cart/Price").context
    assert {
        "traceparent": f"00-{TRACE_ID:032x}-{own.span_id:016x}-01",
        "tracestate": "vendor=x",
        "baggage": "tenant=blue",
    } == sent
    parent = kept.one("child").parent
    assert parent is not None
    assert (TRACE_ID, own.span_id, False) == (parent.trace_id, parent.span_id, parent.is_remote)


CHANGES: list[Callable[[Span], object]] = [
    lambda span: span.set_attribute("mine", 1),
    lambda span: span.set_attributes({"mine": 1}),
    lambda span: span.add_event("mine"),
    lambda span: span.update_name("mine"),
    lambda span: span.set_status(trace.StatusCode.OK),
    lambda span: span.record_exception(LookupError("mine")),
    lambda span: span.add_link(trace.SpanContext(3, 4, is_remote=True)),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_added_is_exported_with_the_rest(kept: Kept, change: Callable[[Span], object]):
    call, span = served(kept)
    change(span)
    changed = (
        dict(span.attributes or {}),
        span.name,
        [event.name for event in span.events],
        [link.context.span_id for link in span.links],
    )
    assert (("shop.Cart/Price", {"pyserve.model_id": "big"}, [], [])) != changed
    call.end()

    (found,) = kept.spans_kept()
    assert not isinstance(found, EncodedSpan)
    said = dict(found.attributes or {})
    assert "0" == said.pop("rpc.response.status_code")
    assert changed == (
        said,
        found.name,
        [event.name for event in found.events],
        [link.context.span_id for link in found.links],
    )


READS: list[Callable[[ReadableSpan], object]] = [
    lambda span: span.name,
    lambda span: span.kind,
    lambda span: dict(span.attributes or {}),
    lambda span: span.parent and (span.parent.span_id, span.parent.is_remote),
    lambda span: span.context.trace_id,
    lambda span: span.context.span_id,
    lambda span: span.resource,
    lambda span: span.instrumentation_scope,
    lambda span: span.start_time,
    lambda span: (span.events, span.links),
]


@pytest.mark.parametrize("read", READS)
def test_it_reads_as_what_is_exported_unseen(kept: Kept, read: Callable[[ReadableSpan], object]):
    call, span = served(kept)
    seen = read(span)
    expected = read(EncodedSpan(call.encode_span(), kept.provider.resource))

    assert expected == seen


def test_reading_it_late_tells_how_it_ended(kept: Kept, caplog: pytest.LogCaptureFixture):
    call, span = served(kept)
    call.end(5, "no tea")
    with caplog.at_level(logging.WARNING):
        span.set_attribute("late", 1)

    assert "ended span" in caplog.text
    (found,) = kept.spans_kept()
    for each in (span, found):
        assert ("5", "no tea", CALLER_ID) == (
            (each.attributes or {})["rpc.response.status_code"],
            each.status.description,
            each.parent and each.parent.span_id,
        )
        assert "late" not in (each.attributes or {})
    assert found.end_time == span.end_time


def test_user_code_may_end_it_itself(kept: Kept):
    call, span = served(kept)
    span.end()
    assert not span.is_recording()
    call.end()

    assert ["shop.Cart/Price"] == kept.names()


def test_only_the_first_end_counts(kept: Kept):
    call, _ = served(kept)
    call.end()
    call.end(5)

    assert trace.StatusCode.UNSET == kept.one("shop.Cart/Price").status.status_code


def test_threads_that_add_at_once_make_one_span(kept: Kept):
    call, span = served(kept)
    barrier = threading.Barrier(8)

    def add(number: int) -> None:
        barrier.wait(10)
        span.set_attribute(f"thread {number}", number)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    call.end()

    said = dict(kept.one("shop.Cart/Price").attributes or {})
    assert {f"thread {number}": number for number in range(8)}.items() <= said.items()


def test_one_whose_call_ends_while_it_is_made_is_exported(kept: Kept):
    class Ending(FakeCall):
        """Another thread ends the call as soon as Python has its span."""

        def take_over_span(self) -> bool:
            is_open = super().take_over_span()
            self.ending = threading.Thread(target=self.end)
            self.ending.start()
            wait_until(lambda: not self.has_open_span, 10)
            return is_open

    call, span = served(kept, Ending())
    span.set_attribute("mine", 1)
    assert isinstance(call, Ending)
    call.ending.join(10)

    assert "0" == (kept.one("shop.Cart/Price").attributes or {})["rpc.response.status_code"]


def test_the_random_flag_of_the_caller_is_passed_on(kept: Kept):
    _, span = served(kept, FakeCall(flags="0b"))

    assert 3 == span.get_span_context().trace_flags


@pytest.mark.parametrize(
    ("variable", "limit"),
    [(OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT, "2"), (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, "1")],
)
def test_limits_on_attributes_are_kept(monkeypatch: pytest.MonkeyPatch, variable: str, limit: str):
    monkeypatch.setenv(variable, limit)
    kept = Kept(is_watched=False)
    call, _ = served(kept)
    call.end()

    (found,) = kept.spans_kept()
    assert "big" not in (found.attributes or {}).values()


def test_attributes_that_no_span_has_are_none_of_it(kept: Kept):
    _, span = served(kept)

    assert not hasattr(span, "no_such_thing")
