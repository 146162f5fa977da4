"""Who is in the roster, who has changed, and for whom something may be due."""

import pytest
from hypothesis import given

from pyserve.config import DeploymentOptions
from pyserve.control.state.replica import Failure, Phase, Replica
from pyserve.control.state.roster import Roster, take
from pyserve.types import ReplicaId
from tests.unit.control.test_reconcile_properties import EVENTS, apply_event
from tests.unit.control.world import World, key


def replica(name, deployment="Echo", version="v1"):
    return Replica(ReplicaId(name), key(deployment), version, DeploymentOptions(), 0, 0.0)


def roster_of(*replicas):
    return Roster({each.id: each for each in replicas})


def test_a_follower_gets_all_that_are_there_and_then_those_that_change():
    roster = roster_of(replica("a"), replica("b"))
    changed = roster.follow()
    assert ["a", "b"] == list(take(changed))
    assert [] == list(take(changed))

    roster[ReplicaId("b")].silent = True
    roster[ReplicaId("c")] = replica("c")
    del roster[ReplicaId("a")]

    assert ["b", "c", "a"] == list(take(changed))


def test_each_follower_takes_its_own():
    roster = roster_of(replica("a"))
    first, second = roster.follow(), roster.follow()
    take(first)
    assert ["a"] == list(take(second))


def test_one_that_has_left_tells_nobody():
    roster = roster_of(replica("a"))
    gone = roster.pop(ReplicaId("a"))
    changed = roster.follow()
    gone.silent = True
    assert [] == list(take(changed))


def test_a_question_that_is_under_way_is_no_change():
    """Thousands are asked every few seconds."""
    roster = roster_of(replica("a"))
    changed = roster.follow()
    take(changed)
    roster[ReplicaId("a")].asked_at = 7.0
    assert [] == list(take(changed))


def test_another_one_of_the_same_name_takes_the_place():
    roster = roster_of(replica("a", "Echo"))
    roster[ReplicaId("a")] = replica("a", "Other", "v2")
    assert ([], ["a"]) == (list(roster.of(key("Echo"))), list(roster.of(key("Other"))))
    assert {"v2"} == roster.versions()


@pytest.mark.parametrize(
    ("change", "is_uneasy"),
    [
        ({}, False),
        ({"cordoned": True}, False),
        ({"phase": Phase.STARTING}, True),
        ({"phase": Phase.STOPPING}, True),
        ({"left_at": 1.0}, True),
        ({"health_failures": 1}, True),
        ({"hangs": True}, True),
        ({"refusal": Failure("no")}, True),
    ],
)
def test_something_may_be_due_for_those_only_that_are_not_calm(change, is_uneasy):
    roster = roster_of(replica("a"), replica("b", "Other"))
    for each in roster.values():
        each.phase = Phase.RUNNING
    assert [] == roster.uneasy()
    for name, value in change.items():
        setattr(roster[ReplicaId("a")], name, value)
    assert is_uneasy == bool(roster.uneasy())
    assert [] == roster.uneasy(key("Other"))


@given(EVENTS)
def test_what_is_found_by_an_index_is_what_is_there(events):
    world = World()
    world.deploy(Echo=3, Other=2)
    for kind, number in events:
        apply_event(world, kind, number)
        world.settle()

        roster = world.state.replicas
        for name in ("Echo", "Other"):
            mine = [each for each in roster.values() if each.key == key(name)]
            assert mine == list(roster.of(key(name)).values())
            assert mine == roster.by_deployment()[key(name)]
            for version in {each.version for each in mine} | {"none"}:
                there = any(each.version == version for each in mine)
                assert there == roster.has_version(key(name), version)
        assert {each.version for each in roster.values()} == roster.versions()
        uneasy = {each.id for each in roster.values() if not each.is_calm}
        assert uneasy == {each.id for each in roster.uneasy()}
