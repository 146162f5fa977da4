"""Where the time of a call went, from what the ingress and replicas know of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from pyserve.admin.calls.explaining import REASONS, Known, explanation
from pyserve.admin.calls.store import SLOW_FOR_S, CallStore, NativeAttempt, read_record
from pyserve.batching.lanes import Reason

_START_NS = 1_000_000_000_000
_START_S = 1_000.0
_MILLI = 1_000_000


@dataclass
class Record:
    """As the native side has it; times in nanoseconds."""

    request_id: str = "id"
    kept_for: str = "slow"
    trace_id: bytes = b""
    span_id: bytes = b""
    parent_id: bytes = b""
    tracestate: str = ""
    is_sampled: bool = False
    door: str = "http"
    method: str = "GET /"
    path: str = ""
    application: str = "shop"
    deployment: str = "Cart"
    peer: str = ""
    model_id: str = ""
    start_unix_ns: int = _START_NS
    duration_ns: int = 100 * _MILLI
    parked_ns: int = 0
    first_byte_ns: int = -1
    code: int = 0
    http_status: int = 200
    refused: str = ""
    answered_by: str = "replica"
    reason: str = ""
    request_bytes: int = 10
    response_bytes: int = 20
    explanation: str = ""
    attempts: list[NativeAttempt] = field(default_factory=list)


def attempt(
    start_ms: int,
    head_ms: int,
    end_ms: int,
    name: str = "Cart#1",
    why: str = "first",
    how: str = "ok",
) -> NativeAttempt:
    head = head_ms * _MILLI if head_ms >= 0 else -1
    return (name, b"", start_ms * _MILLI, head, end_ms * _MILLI, why, how)


def explained(record: Record, **known: Any) -> dict[str, Any]:
    found = explanation(read_record(record), Known(**known))
    assert json.loads(json.dumps(found)) == found
    # Each moment of the call belongs to one part.
    total = sum(part["seconds"] for part in found["parts"])
    assert pytest.approx(found["duration_s"], abs=1e-5) == total
    return found


def check(expected: list[tuple[str, int]], record: Record, **known: Any) -> dict[str, Any]:
    """Compare the parts: their kinds, and milliseconds."""
    found = explained(record, **known)
    assert expected == [(part["kind"], round(part["seconds"] * 1000)) for part in found["parts"]]
    return found


def batch(
    begun_ms: int, waited_ms: int, ran_ms: int, *, reason: str = "window", **inside: Any
) -> dict[str, Any]:
    return {
        "function": "Cart.price",
        "reason": reason,
        "model_id": "",
        "size": 3,
        "begun_at": _START_S + begun_ms / 1000,
        "waited_s": waited_ms / 1000,
        "ran_s": ran_ms / 1000,
        "failed": False,
        "members": ["id", "other"],
        "inside": inside,
    }


def load(begun_ms: int, waited_ms: int) -> dict[str, Any]:
    return {
        "loader": "Cart.model",
        "model_id": "large",
        "begun_at": _START_S + begun_ms / 1000,
        "room_s": 0.0,
        "waited_s": waited_ms / 1000,
        "load_s": waited_ms / 1000,
        "error": "",
    }


def child(begun_ms: int, took_ms: int, to: str = "shop/Prices.of") -> dict[str, Any]:
    begun_at = _START_S + begun_ms / 1000
    return {"to": to, "begun_at": begun_at, "duration_s": took_ms / 1000, "error": ""}


def test_a_call_that_was_parked():
    record = Record(parked_ns=80 * _MILLI, attempts=[attempt(85, 99, 100)])
    found = check([("parked", 80), ("here", 14), ("request", 5), ("answer", 1)], record)
    assert "waited for a free replica of shop/Cart" == found["cause"]["text"]
    assert 0.8 == found["cause"]["share"]


def test_a_call_whose_replica_is_slow():
    record = Record(attempts=[attempt(1, 98, 99)])
    outliers = {"Cart#1": "16.0 × as slow as its siblings"}
    found = check(
        [("here", 97), ("request", 1), ("answer", 1), ("end", 1)], record, outliers=outliers
    )
    assert "ran in Cart#1, which is 16.0 × as slow as its siblings" == found["cause"]["text"]


def test_a_call_that_waited_for_a_batch():
    record = Record(attempts=[attempt(0, 100, 100)])
    delays = {"Cart#1": {"batches": [batch(5, 80, 10)]}}
    found = check([("batch_wait", 80), ("here", 10), ("batch_run", 10)], record, delays=delays)
    assert (
        "waited for a batch of Cart.price, which left with 3 calls because its window had passed "
        "(batch_wait_timeout_s)"
    ) == found["cause"]["text"]


def test_a_call_that_was_there_while_code_held_the_loop():
    """Also where it seemed to wait for something else, which could not go on either."""
    record = Record(attempts=[attempt(0, 100, 100)])
    held = {"place": "shop.py:7 in of", "begun_at": _START_S + 0.01, "duration_s": 0.07}
    before = {**held, "begun_at": _START_S - 9.0}
    delays = {"Cart#1": {"stalls": [before, held], "calls": [child(5, 90)]}}
    found = check([("stall", 70), ("call", 20), ("here", 10)], record, delays=delays)
    assert (
        "waited for the event loop of Cart#1, which shop.py:7 in of held"
        == (found["cause"]["text"])
    )


def test_a_call_that_waited_for_a_model():
    record = Record(attempts=[attempt(0, 100, 100)], model_id="large")
    delays = {"Cart#1": {"loads": [load(5, 90)], "batches": [batch(5, 60, 30)]}}
    found = check([("load", 90), ("here", 10)], record, delays=delays)
    assert "waited for the model large to be loaded by Cart.model" == found["cause"]["text"]


def test_a_call_that_called_others_at_once_waited_for_each_moment_once():
    record = Record(attempts=[attempt(0, 100, 100)])
    delays = {"Cart#1": {"calls": [child(10, 60), child(20, 70, "shop/Stock.of")]}}
    found = explained(record, delays=delays)
    assert ["called shop/Stock.of", "called shop/Prices.of"] == [
        part["text"] for part in found["parts"] if part["kind"] == "call"
    ]
    assert 0.08 == sum(part["seconds"] for part in found["parts"] if part["kind"] == "call")


def test_a_called_deployment_says_what_the_call_waited_for_there():
    record = Record(attempts=[attempt(0, 100, 100)])
    delays = {
        "Cart#1": {"calls": [child(10, 80)]},
        "Prices#1": {"batches": [batch(12, 70, 5)]},
        "Prices#2": {},
    }
    found = explained(record, delays=delays, replicas={"shop/Prices": ["Prices#1", "Prices#2"]})
    assert found["cause"]["text"].startswith(
        "called shop/Prices.of, which waited for a batch of Cart.price"
    )
    assert found["cause"]["text"].endswith(" in Prices#1")


def test_a_called_deployment_that_raised_says_what():
    record = Record(kept_for="failed", http_status=500, attempts=[attempt(0, 100, 100)])
    failed = {**child(10, 80), "error": "OutOfCount"}
    found = explained(record, delays={"Cart#1": {"calls": [failed]}})
    assert "called shop/Prices.of (it raised OutOfCount)" == found["cause"]["text"]


def test_a_called_deployment_whose_client_left_has_raised_nothing():
    record = Record(kept_for="failed", http_status=499, attempts=[attempt(0, 100, 100)])
    left = {**child(10, 80), "error": "RequestCancelled"}
    found = explained(record, delays={"Cart#1": {"calls": [left]}})
    assert "called shop/Prices.of (it was cancelled)" == found["cause"]["text"]


@pytest.mark.parametrize(("took_ms", "is_blamed"), [(90, True), (40, False)])
def test_an_outlier_is_named_only_where_much_of_the_time_went(took_ms: int, is_blamed: bool):
    """A call that another one outlasted is nothing that the client waited for."""
    record = Record(attempts=[attempt(0, 100, 100)])
    delays = {"Cart#1": {"calls": [child(0, took_ms), child(5, 80, "shop/Stock.of")]}}
    found = explained(
        record,
        delays=delays,
        replicas={"shop/Prices": ["Prices#1"]},
        outliers={"Prices#1": "9 × as slow as its siblings"},
    )
    more = ", which may have met an outlier: Prices#1 is 9 × as slow as its siblings"
    assert [f"called shop/Prices.of{more if is_blamed else ''}"] == [
        part["text"] for part in found["parts"] if "Prices" in part["text"]
    ]


def test_calls_from_within_a_batch_are_part_of_its_run():
    record = Record(attempts=[attempt(0, 100, 100)])
    delays = {"Cart#1": {"batches": [batch(0, 10, 80, calls=[child(20, 50)])]}}
    check(
        [("call", 50), ("batch_run", 30), ("batch_wait", 10), ("here", 10)], record, delays=delays
    )


def test_attempts_before_the_last_and_the_pause_between_them():
    attempts = [
        attempt(0, -1, 30, how="connect_failed"),
        attempt(50, 99, 100, name="Cart#2", why="connect_failed_before"),
    ]
    record = Record(attempts=attempts, parked_ns=5 * _MILLI)
    found = check(
        [("here", 49), ("attempt", 30), ("between", 15), ("parked", 5), ("answer", 1)], record
    )
    assert ["first", "connect_failed_before"] == [each["why"] for each in found["attempts"]]
    assert "Cart#2" == found["replica"]


def test_a_hedge_that_was_faster_has_the_time_since_it_began():
    attempts = [
        attempt(0, -1, 100, how="superseded"),
        attempt(70, 100, 100, name="Cart#2", why="hedge"),
    ]
    check([("attempt", 70), ("here", 30)], Record(attempts=attempts))


def test_a_call_that_no_replica_took_says_why():
    record = Record(parked_ns=100 * _MILLI, refused="deadline", answered_by="ingress")
    found = check([("parked", 100)], record)
    assert found["cause"]["text"].endswith("; none came, and it was refused: deadline")


def test_a_call_that_took_no_time_has_no_cause():
    assert explained(Record(duration_ns=0))["cause"] is None


def test_what_replicas_say_outside_of_the_attempt_is_cut_off():
    # Clocks of two machines differ, and an id may come again.
    record = Record(attempts=[attempt(10, 100, 100)])
    delays = {"Cart#1": {"batches": [batch(-500, 520, 40), batch(5000, 10, 10)]}}
    check(
        [("here", 40), ("batch_run", 40), ("request", 10), ("batch_wait", 10)],
        record,
        delays=delays,
    )


def test_the_line_of_the_router_is_read():
    record = Record(explanation='{"rule": "predicted"}', attempts=[attempt(0, 100, 100)])
    assert {"rule": "predicted"} == explained(record)["routing"]
    record.explanation = "no JSON"
    assert "no JSON" == explained(record)["routing"]


def test_each_reason_of_a_batch_has_words():
    assert set(Reason) == set(REASONS)


def test_the_newest_of_each_kind_are_kept_and_the_slowest_come_first():
    store = CallStore(kept_max=2)
    store.add(Record(str(ms), duration_ns=ms * _MILLI) for ms in (9, 5, 7))
    store.add([Record("bad", kept_for="failed"), Record("all", kept_for="all")])
    assert ["9", "7"] == [call.request_id for call in store.of_kind("slow")]
    assert ["bad"] == [call.request_id for call in store.of_kind("failed")]
    assert ([], [], 1) == (store.find("5"), store.find("all"), len(store.find("bad")))


def test_the_slowest_are_those_of_a_time_however_many_calls_come():
    second = 1_000 * _MILLI
    store = CallStore(kept_max=3)

    def add(name: str, at_s: float, took_ms: int) -> None:
        begun = _START_NS + int(at_s * second)
        store.add([Record(name, start_unix_ns=begun, duration_ns=took_ms * _MILLI)])

    def kept() -> list[str]:
        return [call.request_id for call in store.of_kind("slow")]

    add("very slow", 0.0, 900)
    for number in range(50):
        add(f"slow {number}", 1.0 + number, 100 + number)
    assert ["very slow", "slow 49", "slow 48"] == kept()
    assert 1 == len(store.find("very slow"))

    add("later", SLOW_FOR_S + 30.0, 10)
    assert ["slow 49", "slow 48"] == kept()[:2]
    assert [] == store.find("very slow")
    add("much later", 2 * SLOW_FOR_S + 60.0, 5)
    assert ["much later"] == kept()


def test_an_id_that_came_again_is_found_newest_first():
    store = CallStore()
    store.add(
        [Record(duration_ns=1), Record(kept_for="asked", duration_ns=2), Record(duration_ns=3)]
    )
    assert [3e-9, 2e-9, 1e-9] == [call.duration_s for call in store.find("id")]
