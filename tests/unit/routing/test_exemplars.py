"""From a bucket of a histogram to the trace of the call that was in it last."""

from __future__ import annotations

from dataclasses import dataclass

from pyserve.observe.metrics import Scrape
from pyserve.observe.metrics.catalogue import OF_COUNTS
from pyserve.observe.metrics.families import TIME_BOUNDS_S
from pyserve.routing.measures import Exemplars, add_table

TRACE = bytes(range(16))
# The statistics of each deployment in a native table.
COUNTS = [name for metric in OF_COUNTS for name in metric.counts]


@dataclass(frozen=True)
class Call:
    """The fields of a record that are read."""

    duration_ns: int
    trace_id: bytes = TRACE
    is_sampled: bool = True
    code: int = 0
    http_status: int = 0
    application: str = "shop"
    deployment: str = "Cart"
    start_unix_ns: int = 10**18


def taken(*calls: Call) -> Exemplars:
    found = Exemplars()
    found.take(calls)
    return found


def test_the_last_sampled_call_of_each_bucket_is_known():
    other = b"\xff" * 16
    found = taken(Call(3_000_000), Call(40_000), Call(4_000_000, trace_id=other)).of(
        "shop/Cart", "ok"
    )
    assert {0: (TRACE.hex(), 0.00004), 6: (other.hex(), 0.004)} == {
        bucket: mark[:2] for bucket, mark in found.items()
    }
    assert 1e9 + 0.004 == found[6][2]
    assert 0.005 == TIME_BOUNDS_S[6]


def test_calls_that_nobody_traces_are_none():
    unsampled = Call(1, is_sampled=False)
    unknown = Call(1, deployment="", application="")
    assert {} == taken(unsampled, unknown, Call(1, trace_id=b"")).of("shop/Cart", "ok")


def test_failures_stand_with_failures():
    found = taken(Call(1, code=14), Call(1, http_status=503), Call(1, code=5), Call(1))
    assert 1 == len(found.of("shop/Cart", "failed"))
    assert 1 == len(found.of("shop/Cart", "ok"))


def test_deployments_that_have_gone_are_forgotten():
    found = taken(Call(1), Call(1, deployment="Web"))
    found.keep({"shop/Web": None}.keys())
    assert {} == found.of("shop/Cart", "ok")
    assert 1 == len(found.of("shop/Web", "ok"))


def test_a_scrape_has_them_at_their_buckets():
    counts = [0] * 6 + [1] + [0] * 14
    times = {"buckets": list(TIME_BOUNDS_S), "counts": counts, "sum": 0.003}
    nothing = {"buckets": list(TIME_BOUNDS_S), "counts": [0] * 21, "sum": 0.0}
    measured = {
        "latency_ok": times,
        **dict.fromkeys(
            ("latency_failed", "parked_wait", "prediction_early", "prediction_late"), nothing
        ),
        **{name: {} for name in ("attempts", "sent", "sent_by_tier", "releases", "refused")},
        "kept_wrongly_s": 0.0,
        "codes": {},
        "http": {},
        "left": 0,
        "request_bytes": 0,
        "response_bytes": 0,
    }
    scrape = Scrape({})
    add_table(
        scrape,
        {"shop/Cart": {**dict.fromkeys(COUNTS, 1), "in_flight": {}}},
        {"shop/Cart": measured},
        caller="ingress",
        caller_id="1",
        exemplars=taken(Call(3_000_000)),
    )
    (family,) = [each for each in scrape.families() if each.name == "pyserve_router_call_seconds"]
    marked = {
        (each.labels["outcome"], each.labels["le"]): each.exemplar[0]
        for each in family.samples
        if each.exemplar is not None
    }
    assert {("ok", "0.005"): TRACE.hex()} == marked
