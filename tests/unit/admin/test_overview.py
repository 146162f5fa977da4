"""What an overview says of the time between two looks."""

import json
from dataclasses import replace

from pyserve.admin.api.overview import Between, overview
from pyserve.admin.api.resources import deployment_details
from pyserve.admin.api.snapshot import Routed
from tests.unit.admin.builders import CART, attempts, look, routed, status, times


def between(then: Routed, now: Routed) -> Between:
    return Between.of(look(0.0, {CART: then}), look(2.0, {CART: now}, Cart_2=5), None)


THEN = routed(Cart_1=attempts(10, 0.005), Cart_2=attempts(10, 0.005))
NOW = routed(
    Cart_1=attempts(30, 0.005), Cart_2=attempts(10, 0.005).plus(attempts(10, 0.05, failed=5))
)


def test_rates_are_of_the_time_between_the_looks():
    (deployment,) = overview(between(THEN, NOW))["deployments"]
    assert 15.0 == deployment["calls_per_second"]
    assert 2.5 == deployment["errors_per_second"]
    rates = {each["id"]: each["calls_per_second"] for each in deployment["replicas"]}
    assert {"Cart#1": 10.0, "Cart#2": 5.0} == rates


def test_shares_and_times_are_of_the_same_calls():
    (deployment,) = overview(between(THEN, NOW))["deployments"]
    replicas = {each["id"]: each for each in deployment["replicas"]}
    assert (0.0, 0.5) == (replicas["Cart#1"]["error_share"], replicas["Cart#2"]["error_share"])
    assert 0.005 == replicas["Cart#1"]["mean_s"]
    assert 0.001 < deployment["p50_s"] < 0.04 < deployment["p99_s"]


def test_a_second_look_without_calls_has_no_times():
    (deployment,) = overview(between(NOW, NOW))["deployments"]
    assert (0.0, None, None, None) == tuple(
        deployment[name] for name in ("calls_per_second", "error_share", "p50_s", "p99_s")
    )


def test_an_outlier_is_judged_over_a_longer_time_and_comes_first():
    slow = routed(Cart_1=attempts(30, 0.005), Cart_2=attempts(20, 0.05))
    found = overview(Between.of(look(59.0, {CART: slow}), look(60.0, {CART: slow}), None))
    (deployment,) = found["deployments"]
    assert "Cart#2" == deployment["replicas"][0]["id"]
    assert "10.0 × as slow" in deployment["replicas"][0]["odd"]
    assert any("Cart#2" in event["text"] for event in found["events"] if event["kind"] == "odd")


def test_a_replica_that_routers_avoid_is_judged_by_all_of_its_calls():
    slow = attempts(20, 0.5)
    then = routed(Cart_1=attempts(30, 0.005), Cart_2=slow)
    now = routed(Cart_1=attempts(500, 0.005), Cart_2=slow)
    looks = look(0.0, {CART: then}), look(58.0, {CART: now}), look(60.0, {CART: now})
    found = Between.of(looks[1], looks[2], looks[0])
    assert {"Cart#2": "100.0 × as slow as its siblings"} == found.outliers


def test_replicas_are_compared_by_method_over_the_same_time():
    """Serving only long calls since the earlier look does not make an outlier."""
    routed_ = routed(
        Cart_1=attempts(300, 0.005), Cart_2=attempts(300, 0.5), Cart_3=attempts(300, 0.005)
    )
    short, long = attempts(100, 0.005).ended, attempts(100, 0.5).ended
    methods = {"Cart#1": {"short": short}, "Cart#2": {"long": long}, "Cart#3": {"short": short}}
    then, now = look(0.0), look(60.0, {CART: routed_})
    assert ["Cart#2"] == list(Between.of(then, now, then).outliers)
    known = replace(now, methods=methods)
    assert {} == Between.of(then, known, then).outliers
    slow = {**methods, "Cart#2": {"long": long, "short": attempts(100, 0.02).ended}}
    slower = replace(known, methods=slow)
    words = {"Cart#2": "4.0 × as slow as its siblings in short"}
    assert words == Between.of(then, slower, then).outliers
    assert {} == Between.of(then, slower, replace(slower, edges={})).outliers


def test_what_all_callers_did_is_one_deployment():
    edges = {CART: NOW, ("shop/Web", "shop/Cart"): NOW}
    (deployment,) = overview(Between.of(look(0.0), look(2.0, edges), None))["deployments"]
    assert 50.0 == deployment["calls_per_second"]


def test_what_waits_and_why_there_are_so_many_replicas():
    (deployment,) = overview(between(THEN, NOW))["deployments"]
    assert (4, 1) == (deployment["in_flight"], deployment["parked"])
    assert (2, "3 calls wait") == (
        deployment["scaling"]["target"],
        deployment["scaling"]["reason"],
    )


def test_predictions_are_compared_with_what_came():
    routed_ = Routed(early=times(0.001, 0.001, 0.001), late=times(0.005))
    (deployment,) = overview(between(Routed(), routed_))["deployments"]
    assert {"calls": 4, "late_share": 0.25, "early_mean_s": 0.001} == {
        name: deployment["prediction"][name] for name in ("calls", "late_share", "early_mean_s")
    }


def test_more_replicas_than_fit_are_counted():
    reply = status(replicas=[f"Cart#{number}" for number in range(60)])
    looks = look(0.0, reply=reply), look(1.0, reply=reply)
    (deployment,) = overview(Between.of(*looks, None))["deployments"]
    assert (50, 10) == (len(deployment["replicas"]), deployment["replicas_left_out"])
    details = deployment_details(Between.of(*looks, None), "shop", "Cart")
    assert details is not None
    assert (60, 0) == (len(details["replicas"]), details["replicas_left_out"])


def test_cache_entries_are_counted_between_the_looks():
    then = Routed(counts={"cache_keys_found": 10, "cache_keys_missed": 10})
    now = Routed(counts={"cache_keys_found": 16, "cache_keys_missed": 12})
    looks = look(0.0, {CART: then}), replace(look(2.0, {CART: now}), kept={"shop/Cart": 7})
    details = deployment_details(Between.of(*looks, None), "shop", "Cart")
    assert details is not None
    assert {
        "kept": 7,
        "found_per_second": 3.0,
        "missed_per_second": 1.0,
        "found_share": 0.75,
    } == details["cache"]
    without = deployment_details(between(THEN, NOW), "shop", "Cart")
    assert without is not None
    assert without["cache"] is None


def test_events_are_in_the_order_of_their_times():
    events = overview(between(THEN, THEN))["events"]
    assert ["scaling", "deployment", "application", "scaling"] == [each["kind"] for each in events]
    assert "2 replicas after 1: 3 calls wait" == events[0]["text"]


def test_each_decision_has_its_reason():
    (deployment,) = overview(between(THEN, NOW))["deployments"]
    assert [
        {"at": 990.0, "before": 2, "after": 1, "reason": "1 call runs"},
        {"at": 1_001.0, "before": 1, "after": 2, "reason": "3 calls wait"},
    ] == deployment["scaling"]["decisions"]


def test_a_replica_that_has_ended_by_itself_is_told_without_what_it_wrote():
    reply = status()
    ended = reply.applications[0].deployments[0].ended.add()
    ended.replica_id, ended.ended_at, ended.summary = "Cart#0", 1_500.0, "was killed by SIGKILL"
    ended.lines.append("a password")
    found = overview(Between.of(look(0.0), look(1.0, reply=reply), None))
    assert [{"replica": "Cart#0", "at": 1_500.0, "summary": "was killed by SIGKILL"}] == found[
        "deployments"
    ][0]["ended"]
    assert {"at": 1_500.0, "kind": "replica", "where": "shop/Cart", "level": "bad"} == {
        name: value for name, value in found["events"][0].items() if name != "text"
    }
    assert "Cart#0 was killed by SIGKILL" == found["events"][0]["text"]
    assert "a password" not in json.dumps(found)


def test_a_deployment_that_fails_is_marked():
    reply = status(state="DEPLOY_FAILED")
    events = overview(Between.of(look(0.0), look(1.0, reply=reply), None))["events"]
    assert ["bad"] == [event["level"] for event in events if event["kind"] == "deployment"]


def test_it_is_json_and_a_mesh_without_a_deployment_has_details_of_none():
    assert json.loads(json.dumps(overview(between(THEN, NOW))))
    assert deployment_details(between(THEN, NOW), "shop", "Missing") is None
