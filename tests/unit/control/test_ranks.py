"""The numbers of replicas: gap-free, reused, and behind them those that others started."""

import dataclasses

from pyserve.config import DeploymentOptions
from pyserve.control.replicas.identity import Ranks
from pyserve.control.state.mesh import Desired, MeshState, Replica, Version
from pyserve.control.state.replica import EXTERNAL_SLOT, Place
from pyserve.types import (
    ApplicationName,
    DeploymentKey,
    DeploymentName,
    ReplicaId,
    ReplicaRank,
)

KEY = DeploymentKey(ApplicationName("app"), DeploymentName("Echo"))


class Fleet:
    """A deployment of which replicas have said Hello."""

    def __init__(self, num_replicas: int) -> None:
        self.options = DeploymentOptions(num_replicas=num_replicas)
        self.state = MeshState()
        self.ranks = Ranks(self.state)
        version = Version(id="1", options=self.options)
        self.state.deployments[KEY] = Desired(key=KEY, target=version)

    def join(self, name: str, slot: int = EXTERNAL_SLOT, node: str = "here") -> ReplicaRank:
        replica = Replica(
            id=ReplicaId(name),
            key=KEY,
            version="1",
            options=self.options,
            slot=slot,
            created_at=0.0,
            place=Place(node=node),
        )
        self.state.replicas[replica.id] = replica
        return self.ranks.give(replica)

    def leave(self, name: str) -> None:
        del self.state.replicas[ReplicaId(name)]

    def world_size(self, name: str) -> int:
        return self.ranks.world_size(self.state.replicas[ReplicaId(name)])


def test_the_slot_is_the_rank_and_a_replacement_has_it_again():
    fleet = Fleet(3)

    assert [ReplicaRank(slot, 0, slot) for slot in (2, 0, 1)] == [
        fleet.join(f"r{slot}", slot) for slot in (2, 0, 1)
    ]
    fleet.leave("r1")
    assert ReplicaRank(1, 0, 1) == fleet.join("new", 1)
    assert 3 == fleet.world_size("new")


def test_others_are_numbered_behind_as_they_come():
    fleet = Fleet(2)
    fleet.join("r0", 0)
    fleet.join("r1", 1)

    assert ReplicaRank(2, 1, 0) == fleet.join("a", node="there")
    assert ReplicaRank(3, 1, 1) == fleet.join("b", node="there")
    assert ReplicaRank(4, 0, 2) == fleet.join("c", node="here")
    assert 5 == fleet.world_size("c")


def test_numbers_of_those_that_left_are_used_again():
    fleet = Fleet(0)
    for name, node in (("a", "one"), ("b", "two"), ("c", "two")):
        fleet.join(name, node=node)

    fleet.leave("a")

    assert ReplicaRank(0, 0, 0) == fleet.join("d", node="three")
    fleet.leave("b")
    assert ReplicaRank(1, 1, 0) == fleet.join("e", node="two")
    assert 3 == fleet.world_size("e")


def test_a_rank_stays_when_the_stream_breaks():
    fleet = Fleet(0)
    fleet.join("a")
    again = fleet.state.replicas[ReplicaId("a")]
    again.place = dataclasses.replace(again.place, address="127.0.0.1:1")

    assert ReplicaRank(0, 0, 0) == fleet.ranks.give(again)
