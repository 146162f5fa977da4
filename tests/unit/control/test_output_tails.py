"""The last lines of replicas that were not to end are kept, within bounds and for an hour."""

import dataclasses

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.replicas.output import Output, OutputTails
from pyserve.control.state.mesh import Phase, Replica
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import control_pb2

pytestmark = pytest.mark.parity("G-81")
SHOP = DeploymentKey(ApplicationName("shop"), DeploymentName("Model"))
ONE = ReplicaId("Model#1")


def line(text: str, replica_id: str = ONE) -> control_pb2.LogLine:
    return control_pb2.LogLine(replica_id=replica_id, line=text)


def test_a_replica_that_dies_leaves_its_last_lines_and_how_it_ended() -> None:
    words = OutputTails(clock=lambda: 1000.0)
    for number in range(100):
        words.add(ONE, line(str(number)))
    words.end(SHOP, ONE, "was ended by signal 9", is_wanted=False)

    (ended,) = words.ended(SHOP)
    assert ("Model#1", 1000.0, "was ended by signal 9") == (
        ended.replica_id,
        ended.ended_at,
        ended.summary,
    )
    assert [str(number) for number in range(60, 100)] == list(ended.lines)
    assert list(ended.lines) == [each.line for each in words.lines(SHOP, ONE)]


def test_one_that_was_to_end_leaves_nothing() -> None:
    words = OutputTails()
    words.add(ONE, line("bye"))
    words.end(SHOP, ONE, "ended", is_wanted=True)
    assert ([], []) == (words.ended(SHOP), words.lines(SHOP, ONE))


def test_long_lines_leave_room_for_fewer() -> None:
    words = OutputTails()
    for number in range(10):
        words.add(ONE, line(f"{number}" + "x" * 4000))
    words.end(SHOP, ONE, "died", is_wanted=False)
    assert ["8", "9"] == [each[0] for each in words.ended(SHOP)[0].lines]


def test_the_latest_three_are_kept_for_an_hour() -> None:
    now = 0.0
    words = OutputTails(clock=lambda: now)
    for number in range(5):
        now = number * 1000.0
        words.end(SHOP, ReplicaId(f"Model#{number}"), "died", is_wanted=False)
    assert ["Model#2", "Model#3", "Model#4"] == [each.replica_id for each in words.ended(SHOP)]
    now = 4000.0 + 3600.0
    assert ["Model#4"] == [each.replica_id for each in words.ended(SHOP)]
    now += 1.0
    assert [] == words.ended(SHOP)


def test_of_many_deployments_the_latest_are_kept() -> None:
    words = OutputTails()
    keys = [
        DeploymentKey(ApplicationName("shop"), DeploymentName(f"D{number}"))
        for number in range(201)
    ]
    for key in keys:
        words.end(key, ONE, "died", is_wanted=False)
    assert [] == words.ended(keys[0])
    assert 1 == len(words.ended(keys[1]))
    assert 1 == len(words.ended(keys[-1]))


@pytest.mark.parametrize(
    ("change", "summary"),
    [
        ({}, "ended with status 3"),
        ({"phase": Phase.STOPPING, "hangs": True}, "ended with status 3; it did not answer"),
        (
            {"phase": Phase.STOPPING, "ailment": "no model"},
            "ended with status 3; it failed its health check (no model)",
        ),
        (
            {"phase": Phase.STOPPING, "left_at": 1.0, "stopping_at": 9.0},
            "ended with status 3; it had left the mesh before",
        ),
        ({"phase": Phase.STOPPING, "left_at": 9.0, "stopping_at": 8.0}, None),
        ({"phase": Phase.STOPPING, "stops_itself": True}, "ended with status 3"),
        ({"phase": Phase.STOPPING}, None),
    ],
)
def test_what_was_ended_because_it_did_not_do_or_by_others_is_kept_too(
    change: dict[str, object], summary: str | None
) -> None:
    replica = Replica(ONE, SHOP, "v", DeploymentOptions(), 0, 0.0, phase=Phase.RUNNING)
    output = Output()
    output.add(SHOP, ONE, "last")
    output.end(dataclasses.replace(replica, **change), "ended with status 3")  # type: ignore[arg-type]
    assert ([] if summary is None else [summary]) == [each.summary for each in output.ended(SHOP)]


async def test_the_lines_of_one_replica_can_be_had_when_others_have_taken_their_place() -> None:
    output = Output()
    output.add(SHOP, ONE, "why it died")
    output.end(Replica(ONE, SHOP, "v", DeploymentOptions(), 0, 0.0, phase=Phase.RUNNING), "died")
    for number in range(2000):
        output.add(SHOP, ReplicaId("Model#2"), str(number))
    found: list[str] = []

    async def write(each: control_pb2.LogLine) -> None:
        found.append(each.line)

    await output.send(SHOP, write, lines_max=0, follow=False, replica_id=ONE)
    assert ["why it died"] == found
