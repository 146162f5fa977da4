"""The accounts of a soak."""

import pytest

from benchmarks.inspection import Inspection, ProcessFacts, problems_between
from benchmarks.ledger import KILL_NOTICE_S, Kind, Ledger

ECHO = Kind("echo", frozenset({"OK"}))
LATE = Kind("late", frozenset({"OK", "DEADLINE_EXCEEDED"}))


def ended(kind, status, *, begun_s=0.0, ended_s=1.0, kill_s=None):
    ledger = Ledger()
    call = ledger.begin(kind, begun_s)
    if kill_s is not None:
        ledger.on_kill(kill_s)
    ledger.end(call, status, ended_s, "text")
    ledger.finish()
    return ledger


@pytest.mark.parametrize(
    ("kind", "status"), [(ECHO, "OK"), (LATE, "OK"), (LATE, "DEADLINE_EXCEEDED")]
)
def test_a_call_may_end_as_its_kind_may(kind, status):
    ledger = ended(kind, status)
    assert ({}, {status: 1}) == (dict(ledger.problems), ledger.totals())


@pytest.mark.parametrize("status", ["DEADLINE_EXCEEDED", "UNAVAILABLE", "INTERNAL"])
def test_any_other_end_is_a_problem_with_a_sample(status):
    ledger = ended(ECHO, status)
    assert {f"echo ended {status}": 1} == dict(ledger.problems)
    assert ["echo of 1.000 s, met no kill: text"] == ledger.samples


@pytest.mark.parametrize(
    ("begun_s", "ended_s", "excused"),
    [
        (9.0, 10.0, True),
        (9.0, 9.9, False),
        (10 + KILL_NOTICE_S, 20.0, True),
        (10.1 + KILL_NOTICE_S, 20.0, False),
    ],
)
def test_only_calls_that_ran_when_a_replica_was_killed_may_be_unavailable(
    begun_s, ended_s, excused
):
    ledger = ended(ECHO, "UNAVAILABLE", begun_s=begun_s, ended_s=ended_s, kill_s=10.0)
    assert excused is not bool(ledger.problems)


def test_a_kill_excuses_no_other_status():
    assert ended(ECHO, "INTERNAL", ended_s=5.0, kill_s=2.0).problems


def test_a_second_end_is_an_answer_too_many():
    ledger = Ledger()
    call = ledger.begin(ECHO, 0.0)
    ledger.end(call, "OK", 1.0)
    ledger.end(call, "OK", 2.0)
    assert {"answered twice": 1} == dict(ledger.problems)
    assert {"OK": 1} == ledger.totals()


def test_a_call_without_an_end_is_never_answered():
    ledger = Ledger()
    ledger.begin(ECHO, 0.0)
    ledger.end(ledger.begin(ECHO, 0.0), "OK", 1.0)
    assert (2, 1) == (ledger.begun, ledger.open)
    ledger.finish()
    assert {"never answered": 1} == dict(ledger.problems)


def inspected(*, ingress=50, replicas=None, **counters):
    at_rest = {"ingress_in_flight": 0, "parked": 0, "router_in_flight": {"a": 0}}
    return Inspection(
        ingress=ProcessFacts(ingress, 0),
        replicas={name: ProcessFacts(count, 0) for name, count in (replicas or {"a": 30}).items()},
        handlers_running={"a": counters.pop("handlers", 0)},
        **{**at_rest, **counters},
    )


def test_a_mesh_at_rest_has_no_problems():
    before = inspected()
    assert {} == before.in_flight()
    assert [] == problems_between(before, inspected(ingress=58, replicas={"b": 38}))


@pytest.mark.parametrize(
    ("counters", "name"),
    [
        ({"ingress_in_flight": 1}, "ingress 1"),
        ({"parked": 2}, "parked 2"),
        ({"router_in_flight": {"a": 3}}, "router, a 3"),
        ({"handlers": 4}, "handlers, a 4"),
    ],
)
def test_every_counter_that_is_not_zero_is_told(counters, name):
    expected = [f"in flight after the last call: {name}"]
    assert expected == problems_between(inspected(), inspected(**counters))


def test_descriptors_that_grew_are_told():
    (text,) = problems_between(inspected(), inspected(ingress=59))
    assert "ingress holds 9 descriptors more" in text
    (text,) = problems_between(inspected(), inspected(replicas={"b": 39}))
    assert "replica b holds 9 descriptors more" in text
