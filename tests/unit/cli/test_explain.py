"""``pyserve explain``: what is printed of an explanation."""

from __future__ import annotations

from typing import Any

from pyserve.admin.calls.explaining import Known, explanation, summary
from pyserve.admin.calls.store import read_record
from pyserve.cli.activity import explained, listed, together
from tests.unit.admin.test_calls import Record, attempt, batch

_SEEN = '{"rule": "predicted", "replicas": [{"id": "Cart#1", "full": true}]}'
_DELAYS = {"Cart#1": {"batches": [batch(5, 80, 10)]}}


def lines(record: Record, **known: Any) -> list[str]:
    return explained(explanation(read_record(record), Known(**known))).splitlines()


def test_the_first_line_names_the_largest_cause():
    first, second, *_ = lines(Record(attempts=[attempt(0, 100, 100)]), delays=_DELAYS)
    assert (
        "80 ms of 100 ms (80%): waited for a batch of Cart.price, which left with 3 calls because "
        "its window had passed (batch_wait_timeout_s)"
    ) == first
    assert second.startswith("GET / (http) to shop/Cart at ")
    assert second.endswith(": HTTP 200, answered by the replica, kept because it was slow")


def test_parts_attempts_and_what_the_router_saw_follow():
    record = Record(attempts=[attempt(0, 100, 100)], explanation=_SEEN)
    found = lines(record, delays=_DELAYS)
    assert ["  10 ms  10%  ran in Cart#1"] == [each for each in found if "ran in Cart#1" in each]
    assert "  1  Cart#1  first  after 0 µs  took 100 ms  ok" in found
    assert ["  rule: predicted", "  replicas:", "    id Cart#1, full true"] == found[-3:]


def test_attempts_name_the_nodes_of_replicas_that_are_still_there():
    record = Record(attempts=[attempt(0, -1, 20, "Cart#0"), attempt(20, 90, 100, "Cart#1")])
    found = lines(record, nodes={"Cart#1": "east-2"})
    assert "  1  Cart#0            first  after 0 µs   took 20 ms  ok" in found
    assert "  2  Cart#1 at east-2  first  after 20 ms  took 80 ms  ok" in found


def test_a_refusal_has_its_code_and_its_word():
    record = Record(door="grpc", code=4, http_status=0, refused="deadline", parked_ns=100_000_000)
    first, second, *_ = lines(record)
    assert first.startswith("100 ms of 100 ms (100%): waited for a free replica of shop/Cart; none")
    assert ": DEADLINE_EXCEEDED, refused (deadline), answered" in second


def test_who_did_not_answer_is_named():
    found = lines(Record(attempts=[attempt(0, 100, 100)]), silent={"Cart#1": "UNAVAILABLE"})
    assert "  Cart#1: UNAVAILABLE" == found[-1]


def test_a_call_without_a_time_says_so():
    assert "it took 0 µs, of which nothing is known" == lines(Record(duration_ns=0))[0]


_KINDS = ("asked", "failed", "slow", "sampled")


def kept(*records: Record) -> dict[str, Any]:
    """Return what one ingress answers that has kept these, most important first."""
    found: dict[str, Any] = {}
    for kind in _KINDS:
        calls = [summary(read_record(each)) for each in records if each.kept_for == kind]
        found[kind] = {"kept": len(calls), "calls": calls}
    return found


def test_without_an_id_calls_are_listed_with_theirs_those_that_failed_first():
    slow = Record(request_id="slow-1", duration_ns=2_000_000_000)
    failed = Record(request_id="bad-1", kept_for="failed", http_status=500)
    title, bad, _, slow_title, *rest = listed(kept(slow, failed)).splitlines()
    assert "failed, the newest first (1 kept)" == title
    assert bad.startswith("  bad-1  ")
    assert bad.endswith("  100 ms  HTTP 500  GET / to shop/Cart")
    assert "the slowest of late (1 kept)" == slow_title
    assert rest[0].startswith("  slow-1  ")
    assert "`pyserve explain REQUEST_ID` says where the time of one went" == rest[-1]


def test_calls_of_several_ingresses_are_one_list():
    """The newest of them all come first; of slow ones, the slowest. One has to have an id."""
    older, newer = (
        Record(request_id=name, kept_for="failed", start_unix_ns=at * 1_000_000_000)
        for name, at in (("older", 1), ("newer", 2))
    )
    slow, slower = (
        Record(request_id=name, duration_ns=took) for name, took in (("slow", 5), ("slower", 6))
    )
    nameless = Record(request_id="", duration_ns=9)
    found = together([kept(older, slower), kept(newer, nameless, slow)])
    assert ["newer", "older"] == [each["request_id"] for each in found["failed"]["calls"]]
    assert ["slower", "slow"] == [each["request_id"] for each in found["slow"]["calls"]]
    assert (2, 2, 0) == tuple(found[kind]["kept"] for kind in ("failed", "slow", "asked"))


def test_a_terminal_obeys_no_id():
    assert r"'\x1b[2J'" in listed(kept(Record(request_id="\x1b[2J", kept_for="failed")))


def test_an_empty_list_says_what_would_be_kept():
    assert listed(kept()).startswith("no call is kept so far: none has failed")
