"""From the metrics of a node to what routers and replicas did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyserve.admin.api.counted import read_families
from pyserve.admin.api.snapshot import ended, errors
from pyserve.observe.metrics import MODELS, Family, Sample
from pyserve.observe.metrics.families import Tally

_EDGE = {"application": "shop", "deployment": "Cart"}


def caller(name: str, number: int) -> dict[str, str]:
    return {**_EDGE, "caller": name, "caller_id": str(number)}


def counter(name: str, value: float, **labels: str) -> Family:
    return Family(name, "counter", "", [Sample("_total", labels, value)])


def gauge(name: str, value: float, **labels: str) -> Family:
    return Family(name, "gauge", "", [Sample("", labels, value)])


def times(name: str, *each_s: float, **labels: str) -> Family:
    tally = Tally()
    for time_s in each_s:
        tally.add(time_s)
    family = Family(name, "histogram", "")
    family.add_histogram(tally, labels)
    return family


def of_router(labels: dict[str, str]) -> Iterator[Family]:
    yield counter("pyserve_router_calls", 10, **labels)
    yield counter("pyserve_router_unsent_calls", 2, reason="queue_full", **labels)
    yield counter("pyserve_router_ended_calls", 7, code="OK", **labels)
    yield counter("pyserve_router_ended_calls", 1, code="INTERNAL", **labels)
    yield counter("pyserve_router_ended_calls", 1, code="NOT_FOUND", **labels)
    yield counter("pyserve_router_ended_calls", 1, code="left", **labels)
    yield counter("pyserve_router_releases", 4, reason="completion", **labels)
    yield gauge("pyserve_router_parked_calls", 3, **labels)
    yield gauge("pyserve_router_in_flight_calls", 2, replica="Cart#1", **labels)
    yield times("pyserve_router_call_seconds", 0.01, 0.02, outcome="ok", **labels)
    yield times("pyserve_router_call_seconds", 0.5, outcome="failed", **labels)
    yield times("pyserve_router_parked_seconds", 0.004, **labels)
    yield times("pyserve_router_prediction_error_seconds", 0.1, direction="late", **labels)
    yield times("pyserve_router_attempt_seconds", 0.01, replica="Cart#1", **labels)


def test_each_family_is_what_it_says():
    (found,) = read_families(of_router(caller("ingress", 1))).edges.values()
    assert {"calls": 10, "queue_full": 2} == found.counts
    assert (9, 1) == (found.ended, found.errors), "who left has no answer, who asks badly no error"
    assert ({"completion": 4}, 3) == (found.releases, found.parked_now)
    assert {"Cart#1": 2} == found.in_flight
    assert (2, 0.015) == (found.answered.count, found.answered.mean_s)
    assert (1, 0.5) == (found.failed.count, found.failed.mean_s)
    assert (1, 0, 1) == (found.parked.count, found.early.count, found.late.count)
    assert {"Cart#1": 0.01} == {name: each.mean_s for name, each in found.replicas.items()}


def test_callers_of_one_name_are_one():
    families = [
        family
        for name, number in (("ingress", 1), ("shop/Web", 2), ("shop/Web", 3))
        for family in of_router(caller(name, number))
    ]
    found = read_families(families).edges
    assert {("ingress", "shop/Cart"), ("shop/Web", "shop/Cart")} == set(found)
    web = found["shop/Web", "shop/Cart"]
    assert (20, 6, 4) == (web.counts["calls"], web.parked_now, web.answered.count)


def test_whom_nobody_calls_is_no_edge():
    families = [counter("pyserve_router_calls", 0, **caller("ingress", 1))]
    assert {} == read_families(families).edges


def test_ends_of_a_replica_are_those_of_all_its_methods():
    families = [
        counter("pyserve_replica_ended_calls", 5, replica="Cart#1", method="a", code="OK"),
        counter("pyserve_replica_ended_calls", 2, replica="Cart#1", method="b", code="OK"),
        counter("pyserve_replica_ended_calls", 1, replica="Cart#1", method="b", code="UNKNOWN"),
        counter("pyserve_replica_ended_calls", 9, replica="Cart#1", method="b", code="left"),
    ]
    ends = read_families(families).ends["Cart#1"]
    assert (8, 1) == (ended(ends), errors(ends))


def test_times_of_a_replica_are_told_by_method():
    families = [
        times("pyserve_replica_call_seconds", 0.01, 0.03, replica="Cart#1", method="a"),
        times("pyserve_replica_call_seconds", 0.5, replica="Cart#1", method="b"),
    ]
    found = read_families(families).methods["Cart#1"]
    assert {"a": (2, 0.02), "b": (1, 0.5)} == {
        method: (each.count, each.mean_s) for method, each in found.items()
    }


def test_batches_of_all_replicas_are_one():
    families = [
        family
        for replica in ("Cart#1", "Cart#2")
        for labels in [{**_EDGE, "replica": replica, "function": "price"}]
        for family in (
            counter("pyserve_batches", 3, reason="window", **labels),
            counter("pyserve_batches", 1, reason="full", **labels),
            gauge("pyserve_batch_waiting_calls", 2, **labels),
            times("pyserve_batch_wait_seconds", 0.01, **labels),
            times("pyserve_batch_size", 4.0, **labels),
        )
    ]
    found = read_families(families).batches["shop/Cart", "price"]
    assert ({"window": 6, "full": 2}, 4) == (found.reasons, found.waiting_now)
    assert (2, 4.0, 0) == (found.sizes.count, found.sizes.mean_s, found.runs.count)


def test_steps_of_all_replicas_are_one():
    families = [
        family
        for replica in ("Cart#1", "Cart#2")
        for labels in [{**_EDGE, "replica": replica, "function": "Cart"}]
        for family in (
            counter("pyserve_step_admissions", 3, **labels),
            counter("pyserve_step_preemptions", 1, **labels),
            gauge("pyserve_step_running_requests", 2, **labels),
            gauge("pyserve_step_budget_used", 0.5, **labels),
            times("pyserve_step_seconds", 0.01, **labels),
            times("pyserve_step_first_value_seconds", 0.1, **labels),
        )
    ]
    found = read_families(families).steps["shop/Cart", "Cart"]
    assert {"admissions": 6, "preemptions": 2} == found.counts
    assert {"running": 4, "used": 1.0} == found.held
    assert (2, 2, 0) == (found.runs.count, found.first_values.count, found.sizes.count)


def test_cache_entries_of_all_replicas_are_added_up():
    replicas = [{**_EDGE, "replica": name} for name in ("Cart#1", "Cart#2")]
    families = [gauge("pyserve_replica_cache_keys", 3, **labels) for labels in replicas]
    assert {"shop/Cart": 6} == read_families(families).kept


def test_models_are_those_of_a_function_in_a_replica():
    where = {**_EDGE, "replica": "Cart#1", "function": "Cart.get"}
    families = [
        counter("pyserve_model_requests", 5, result="hit", **where),
        counter("pyserve_model_requests", 2, result="miss", **where),
        counter("pyserve_model_loads", 2, outcome="loaded", **where),
        counter("pyserve_model_evictions", 1, **where),
        gauge("pyserve_models_loaded", 1, **where),
        gauge("pyserve_models_max", 3, **where),
        times("pyserve_model_load_seconds", 0.2, 0.4, **where),
        Family(
            MODELS,
            "unknown",
            "",
            [
                Sample("_hits", {**where, "model": "a"}, 5),
                Sample("_bytes", {**where, "model": "a"}, 1024),
            ],
        ),
    ]
    ((key, cache),) = read_families(families).caches.items()
    assert ("shop/Cart", "Cart#1", "Cart.get") == key
    assert {"hit": 5, "miss": 2, "loaded": 2, "evictions": 1, "models": 1, "max": 3} == cache.counts
    assert (2, pytest.approx(0.3)) == (cache.load_times.count, cache.load_times.mean_s)
    assert {"a": {"hits": 5, "bytes": 1024}} == cache.models
