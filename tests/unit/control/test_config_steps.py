"""How many replicas take another ``user_config`` on at once. Virtual time."""

import json
import math
from dataclasses import replace

import pytest

from pyserve.control.reconcile.rollout import Reconfiguring, on_reconfigured
from pyserve.control.state.mesh import Replica, Version
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.world import World, key


class Changing(World):
    """A world whose replicas are told another configuration."""

    reconfiguring = Reconfiguring()

    @property
    def version(self) -> Version:
        target = self.state.deployments[key("Echo")].target
        assert target is not None
        return target

    def configure(self, config: object) -> None:
        self.version.config += 1
        self.version.options = replace(self.version.options, user_config=config)

    def told(self) -> list[ReplicaId]:
        """Return who is told something now; it has to be the configuration of the version."""
        told = dict(self.reconfiguring.tell(self.state))
        for each in told.values():
            assert self.version.config == each.config
            assert self.version.options.user_config == json.loads(each.user_config_json)
        return list(told)

    def answer(self, *names: ReplicaId) -> None:
        for name in names:
            replica = self.state.replicas[name]
            on_reconfigured(replica, mesh_pb2.Reconfigured(config=replica.config_told))

    def undone(self) -> list[Replica]:
        return [item for item in self.serving() if item.config != self.version.config]


def world(count: int, share: float) -> Changing:
    found = Changing()
    found.deploy(Echo={"num_replicas": count, "user_config": 1, "rolling_update_percentage": share})
    found.settle()
    found.make_ready()
    return found


@pytest.mark.parametrize("count", [1, 2, 5, 9, 10, 11])
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 1.0])
def test_as_many_as_an_update_replaces_at_once(count: int, share: float) -> None:
    found = world(count, share)
    step = max(math.ceil(share * count), 1)
    found.configure(2)

    seen = []
    while found.undone():
        now = found.told()
        assert min(step, len(found.undone())) == len(now)
        assert [] == found.told(), "nobody is told more while they take it on"
        seen += now
        found.answer(*now)

    assert sorted(each.id for each in found.serving()) == sorted(seen)
    assert [] == found.told()


def test_each_that_is_done_makes_room_for_the_next_one() -> None:
    found = world(10, 0.2)
    found.configure(2)
    first, second = found.told()

    found.answer(first)
    (third,) = found.told()
    found.answer(second, third)

    assert 2 == len(found.told())


def test_one_that_dies_meanwhile_holds_no_place() -> None:
    found = world(3, 0.2)
    found.configure(2)
    (first,) = found.told()

    found.die(found.state.replicas[first])

    assert 1 == len(found.told())


def test_a_newer_one_begins_anew() -> None:
    """With those that are busy with the one before, so that no more than a step are busy."""
    found = world(6, 0.3)
    found.configure(2)
    found.answer(*found.told())
    busy = found.told()
    found.configure(3)

    assert sorted(busy) == sorted(found.told())
