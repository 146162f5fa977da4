"""The index of replicas: its members, those that changed, and those with a deadline."""

import pytest
from hypothesis import given

from pyserve.config import DeploymentOptions
from pyserve.control.state.replica import Failure, Phase, Replica, ReplicaIndex, take
from pyserve.types import ReplicaId
from tests.unit.control.test_reconcile_properties import EVENTS, apply_event
from tests.unit.control.world import World, key


def replica(name, deployment="Echo", version="v1"):
    return Replica(ReplicaId(name), key(deployment), version, DeploymentOptions(), 0, 0.0)


def replica_index_of(*replicas):
    return ReplicaIndex({each.id: each for each in replicas})


def test_a_follower_gets_all_that_are_there_and_then_those_that_change():
    replica_index = replica_index_of(replica("a"), replica("b"))
    changed = replica_index.follow()
    assert ["a", "b"] == list(take(changed))
    assert [] == list(take(changed))

    replica_index[ReplicaId("b")].silent = True
    replica_index[ReplicaId("c")] = replica("c")
    del replica_index[ReplicaId("a")]

    assert ["b", "c", "a"] == list(take(changed))


def test_each_follower_takes_its_own():
    replica_index = replica_index_of(replica("a"))
    first, second = replica_index.follow(), replica_index.follow()
    take(first)
    assert ["a"] == list(take(second))


def test_one_that_has_left_tells_nobody():
    replica_index = replica_index_of(replica("a"))
    gone = replica_index.pop(ReplicaId("a"))
    changed = replica_index.follow()
    gone.silent = True
    assert [] == list(take(changed))


def test_a_question_that_is_under_way_is_no_change():
    """Thousands are asked every few seconds."""
    replica_index = replica_index_of(replica("a"))
    changed = replica_index.follow()
    take(changed)
    replica_index[ReplicaId("a")].asked_at = 7.0
    assert [] == list(take(changed))


def test_another_one_of_the_same_name_takes_the_place():
    replica_index = replica_index_of(replica("a", "Echo"))
    replica_index[ReplicaId("a")] = replica("a", "Other", "v2")
    assert ([], ["a"]) == (
        list(replica_index.of(key("Echo"))),
        list(replica_index.of(key("Other"))),
    )
    assert {"v2"} == replica_index.versions()


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
    replica_index = replica_index_of(replica("a"), replica("b", "Other"))
    for each in replica_index.values():
        each.phase = Phase.RUNNING
    assert [] == replica_index.uneasy()
    for name, value in change.items():
        setattr(replica_index[ReplicaId("a")], name, value)
    assert is_uneasy == bool(replica_index.uneasy())
    assert [] == replica_index.uneasy(key("Other"))


@given(EVENTS)
def test_what_is_found_by_an_index_is_what_is_there(events):
    world = World()
    world.deploy(Echo=3, Other=2)
    for kind, number in events:
        apply_event(world, kind, number)
        world.settle()

        replica_index = world.state.replicas
        for name in ("Echo", "Other"):
            mine = [each for each in replica_index.values() if each.key == key(name)]
            assert mine == list(replica_index.of(key(name)).values())
            assert mine == replica_index.by_deployment()[key(name)]
            for version in {each.version for each in mine} | {"none"}:
                there = any(each.version == version for each in mine)
                assert there == replica_index.has_version(key(name), version)
        assert {each.version for each in replica_index.values()} == replica_index.versions()
        uneasy = {each.id for each in replica_index.values() if not each.is_calm}
        assert uneasy == {each.id for each in replica_index.uneasy()}
