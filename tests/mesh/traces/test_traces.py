"""One request's spans, from the door of a mesh to the last of its stages, at a collector."""

from __future__ import annotations

import os
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse
from json import loads
from typing import Any

import pytest

from tests.mesh.traces import apps
from tests.support.mesh import RunningMesh
from tests.support.otlp import CLIENT, SERVER, ReceivedSpan, Receiver
from tests.support.waiting import wait_until

CALLER = "00f067aa0ba902b7"
STAGES = ("Decode/whole", "Predict/__call__", "Encode/__call__", "Join/__call__")
# The last span of each process that a request comes to.
EVERY_PROCESS = (
    "GET /",
    "default.Pipeline/naive",
    "batch Scores.score",
    *(f"default.{stage}" for stage in STAGES),
)


def get(mesh: RunningMesh, trace_id: str, flags: str = "01", **headers: str) -> Any:
    """Ask the door as a client that belongs to a trace; return what it answers."""
    told = {"traceparent": f"00-{trace_id}-{CALLER}-{flags}", **headers}
    return loads(asked(mesh, told).read())


def asked(mesh: RunningMesh, headers: dict[str, str]) -> HTTPResponse:
    """Ask the door, and return the answer whose body is still to be read."""
    connection = HTTPConnection(mesh.address, timeout=30)
    connection.request("GET", "/", headers={"connection": "close", **headers})
    return connection.getresponse()


def of_trace(receiver: Receiver, trace_id: str) -> list[ReceivedSpan]:
    return [span for span in receiver.spans() if bytes.fromhex(trace_id) == span.raw.trace_id]


def awaited(receiver: Receiver, trace_id: str, *names: str) -> Trace:
    """Return the spans of a trace once those of these names came, and all that are above them.

    A caller's span has the name of the one that it calls, which comes from another process.
    """

    def is_whole() -> bool:
        found = of_trace(receiver, trace_id)
        known = {bytes.fromhex(CALLER), *(each.id for each in found)}
        parents = {each.parent for each in found if each.parent}
        made = {each.name for each in found if each.kind != CLIENT}
        return made >= set(names) and known >= parents

    wait_until(is_whole, what=f"the spans {names} and all above them have come")
    return Trace(of_trace(receiver, trace_id))


class Trace:
    """The spans of one request, once those came that were waited for."""

    def __init__(self, spans: list[ReceivedSpan]) -> None:
        self._spans = spans
        self._by_id = {span.id: span for span in spans}

    def one(self, name: str, kind: int | None = None) -> ReceivedSpan:
        found = self.all(name, kind)
        assert 1 == len(found), f"{len(found)} spans {name!r} among {self._spans}"
        return found[0]

    def all(self, name: str, kind: int | None = None) -> list[ReceivedSpan]:
        return [each for each in self._spans if each.name == name and kind in (None, each.kind)]

    @property
    def root(self) -> ReceivedSpan:
        (found,) = (each for each in self._spans if each.parent not in self._by_id)
        return found

    def below(self, span: ReceivedSpan, kind: int) -> list[ReceivedSpan]:
        return [each for each in self._spans if each.parent == span.id and each.kind == kind]

    def parent(self, span: ReceivedSpan) -> ReceivedSpan:
        return self._by_id[span.parent]

    def above(self, span: ReceivedSpan) -> ReceivedSpan:
        """Return what has made a call, which is above the spans of the call itself."""
        found = self._by_id[span.parent]
        while found.kind == CLIENT:
            found = self._by_id[found.parent]
        return found


@pytest.mark.slow
@pytest.mark.parity("G-82")
def test_a_request_is_one_trace_through_all_its_stages(mesh: RunningMesh, receiver: Receiver):
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    answer = get(mesh, trace_id, baggage="tenant=blue", **{"x-model": "rare"})

    assert apps.FRAMES == answer["frames"]
    assert [4, 8] == answer["scores"]
    found = awaited(receiver, trace_id, *EVERY_PROCESS, "load Scores.get_model")
    own, naive = found.one("own work"), found.one("default.Pipeline/naive", SERVER)
    door = next(each for each in found.all("GET /", SERVER) if each.id.hex() == answer["span_id"])
    assert (door, own) == (found.above(own), found.above(naive))
    root = found.root
    (attempt,) = found.below(root, CLIENT)
    assert ("pyserve-ingress", CALLER, attempt.id) == (
        root.resource["service.name"],
        root.parent.hex(),
        door.parent,
    )
    assert ("GET", "/", 200, "replica") == (
        root.attributes["http.request.method"],
        root.attributes["http.route"],
        root.attributes["http.response.status_code"],
        root.attributes["pyserve.answered_by"],
    )
    # A call of a handle, its attempt at a replica, and what that makes of it.
    (call,) = found.below(own, CLIENT)
    (attempt,) = found.below(call, CLIENT)
    assert [naive] == found.below(attempt, SERVER)
    assert naive.resource["pyserve.replica"] == attempt.attributes["pyserve.replica"]
    assert "blue" == own.attributes["tenant"]
    for stage in STAGES:
        assert naive == found.above(found.one(f"default.{stage}", SERVER))
    scores = found.all("default.Scores/score", SERVER)
    batch, load = found.one("batch Scores.score"), found.one("load Scores.get_model")
    assert [door, door] == [found.above(each) for each in scores]
    # The batch has waited for the load, as its members for the batch.
    assert {load.id, *(each.id for each in scores)} == batch.links
    assert batch == found.above(load)
    assert [{batch.id}] * 4 == [
        each.links for each in (*scores, *found.all("wait for batch Scores.score"))
    ]


@pytest.mark.slow
def test_spans_say_which_process_made_them(mesh: RunningMesh, receiver: Receiver):
    trace_id = "1af7651916cd43dd8448eb211c80319c"
    get(mesh, trace_id)
    trace = awaited(receiver, trace_id, *EVERY_PROCESS)
    found = trace.one("default.Join/__call__", SERVER).resource

    assert ("Join", "default", "default", "Join") == (
        found["service.name"],
        found["service.namespace"],
        found["pyserve.application"],
        found["pyserve.deployment"],
    )
    assert found["service.instance.id"] == found["pyserve.replica"]
    assert found["pyserve.node"]


@pytest.mark.slow
def test_a_request_that_its_client_does_not_sample_has_no_span(
    mesh: RunningMesh, receiver: Receiver
):
    ignored, seen = "2af7651916cd43dd8448eb211c80319c", "3af7651916cd43dd8448eb211c80319c"
    get(mesh, ignored, flags="00")
    get(mesh, seen)
    awaited(receiver, seen, *EVERY_PROCESS)

    assert [] == of_trace(receiver, ignored)


@pytest.mark.slow
def test_a_request_without_a_decision_begins_a_trace_at_the_ingress(
    mesh: RunningMesh, receiver: Receiver
):
    asked(mesh, {"x-request-id": "a-root"}).read()

    def roots() -> list[ReceivedSpan]:
        return [
            each
            for each in receiver.named("GET /", SERVER)
            if each.attributes.get("pyserve.request_id") == "a-root" and not each.parent
        ]

    wait_until(roots, what="its span has come")
    trace_id = roots()[0].raw.trace_id.hex()
    awaited(receiver, trace_id, *EVERY_PROCESS)


@pytest.mark.slow
def test_a_failure_is_told_where_it_happened_and_to_those_above(
    mesh: RunningMesh, receiver: Receiver
):
    trace_id = "5af7651916cd43dd8448eb211c80319c"
    told = {"traceparent": f"00-{trace_id}-{CALLER}-01", "x-fail": "1"}
    assert 500 == asked(mesh, told).status

    wait_until(lambda: len(of_trace(receiver, trace_id)) == 3, what="three spans have come")
    found = Trace(of_trace(receiver, trace_id))
    (attempt,) = found.below(found.root, CLIENT)
    (door,) = found.below(attempt, SERVER)
    assert ["500"] * 3 == [each.attributes["error.type"] for each in (found.root, attempt, door)]
    (event,) = door.raw.events
    assert "no such tea" in str(event.attributes)


@pytest.mark.slow
def test_a_call_that_waits_for_a_place_has_a_span_of_the_wait(
    mesh: RunningMesh, receiver: Receiver
):
    trace_id = "6af7651916cd43dd8448eb211c80319c"
    get(mesh, trace_id, **{"x-crowd": "1"})

    trace = awaited(receiver, trace_id, "GET /", "default.Narrow/__call__", "parked")
    parked = trace.one("parked")
    call = trace.parent(parked)
    (attempt,) = trace.below(call, CLIENT)
    assert ("Door", "handle") == (
        parked.resource["service.name"],
        call.attributes["pyserve.door"],
    )
    assert call.raw.start_time_unix_nano <= parked.raw.start_time_unix_nano
    assert parked.raw.end_time_unix_nano == attempt.raw.start_time_unix_nano


@pytest.mark.slow
def test_steps_are_linked_to_the_calls_in_them(mesh: RunningMesh, receiver: Receiver):
    trace_id = "7af7651916cd43dd8448eb211c80319c"
    get(mesh, trace_id, **{"x-steps": "1"})

    trace = awaited(receiver, trace_id, "GET /", "default.Countdown/__call__", "step Countdown")
    calls = sorted(
        trace.all("steps Countdown"), key=lambda each: int(each.attributes["pyserve.steps"])
    )
    steps = trace.all("step Countdown")
    served = trace.all("default.Countdown/__call__", SERVER)
    assert {each.id for each in served} == {each.parent for each in calls}
    assert [2, 3] == [each.attributes["pyserve.steps"] for each in calls]
    # Each counts the steps that are linked to it.
    assert [2, 3] == [sum(call.id in step.links for step in steps) for call in calls]
    assert {"Countdown"} == {each.resource["service.name"] for each in steps}


@pytest.mark.slow
def test_a_script_begins_traces_with_its_handles(mesh: RunningMesh, receiver: Receiver):
    environment = {**os.environ, **receiver.environment(), "PYSERVE_HOME": str(mesh.home)}
    command = [sys.executable, "-m", "tests.mesh.traces.script"]
    subprocess.run(command, env=environment, check=True, timeout=60)

    def calls() -> list[ReceivedSpan]:
        found = receiver.named("default.Door/plain", CLIENT)
        return [each for each in found if each.attributes.get("pyserve.door") == "handle"]

    wait_until(lambda: len(calls()) == 2, what="the calls of the script have come")
    (script,) = receiver.named("script")
    assert ["pyserve-driver"] * 3 == [e.resource["service.name"] for e in (script, *calls())]
    assert {b"", script.id} == {each.parent for each in calls()}
    for each in calls():
        trace_id = each.raw.trace_id.hex()
        trace = awaited(receiver, trace_id, "default.Door/plain")
        (attempt,) = trace.below(each, CLIENT)

        def served(trace_id: str = trace_id, attempt: ReceivedSpan = attempt) -> list[ReceivedSpan]:
            return Trace(of_trace(receiver, trace_id)).below(attempt, SERVER)

        wait_until(served, what="the replica's span has come")
        assert ["Door"] == [one.resource["service.name"] for one in served()]
