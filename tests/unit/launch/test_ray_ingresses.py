"""Ingresses on the nodes of a Ray cluster: where they are, and when they start again."""

from __future__ import annotations

import asyncio

import pytest

from pyserve.launch.on_ray.ingresses import NodeIngresses, is_ingress
from pyserve.launch.on_ray.messages import Follow, ReplicaStart
from tests.support.waiting import eventually

pytestmark = pytest.mark.parity("G-40")


class World:
    """Ingresses, and what they have asked for."""

    def __init__(self) -> None:
        self.asked: list[Follow] = []
        self.ingresses = NodeIngresses(self.begin, self.asked.append, is_detached=True)

    async def begin(self) -> ReplicaStart:
        return ReplicaStart(arguments=("--address", "0.0.0.0:8000"), token=b"t", environment={})

    async def started(self, count: int) -> list[str]:
        await eventually(lambda: count == len(self.asked))
        return [each.ingress_of for each in self.asked]


@pytest.fixture
def world() -> World:
    made = World()
    made.ingresses.on_connected("own", ())
    return made


async def test_each_node_but_our_own_has_one(world: World) -> None:
    world.ingresses.on_nodes(["own", "a", "b"])
    assert ["a", "b"] == await world.started(2)

    world.ingresses.on_nodes(["own", "a", "b", "c"])

    assert ["a", "b", "c"] == await world.started(3)
    assert all(each.is_new and is_ingress(each.replica_id) for each in world.asked)
    assert {0} == {each.requested.actor["num_cpus"] for each in world.asked}


async def test_one_that_dies_is_replaced_while_its_node_lives(world: World) -> None:
    world.ingresses.on_nodes(["a", "b"])
    await world.started(2)

    world.ingresses.on_ended("ingress:a", "was killed by SIGKILL")
    assert ["a", "b", "a"] == await world.started(3)

    world.ingresses.on_nodes(["a"])
    world.ingresses.on_ended("ingress:b", "was lost")
    await asyncio.sleep(0)
    assert ["ingress:a"] == list(world.ingresses.names)
    world.ingresses.on_nodes(["a", "b"])
    assert "b" == (await world.started(4))[-1]


async def test_one_that_ends_in_order_stays_away(world: World) -> None:
    world.ingresses.on_nodes(["a"])
    await world.started(1)

    world.ingresses.on_ended("ingress:a", "ended with exit code 0")
    world.ingresses.on_nodes(["a"])
    await asyncio.sleep(0)

    assert 1 == len(world.asked)
    assert [] == world.ingresses.end()


async def test_those_of_a_controller_before_are_found(world: World) -> None:
    world.ingresses.on_connected("own", ["ingress:a", "Echo#abcde"])

    world.ingresses.on_nodes(["a", "b"])
    await world.started(2)

    assert {"a": False, "b": True} == {each.ingress_of: each.is_new for each in world.asked}


async def test_the_end_is_waited_for_and_starts_none(world: World) -> None:
    world.ingresses.on_nodes(["a", "b"])
    await world.started(2)
    world.ingresses.on_ended("ingress:a", "was killed by SIGKILL")
    world.ingresses.on_ended("ingress:a", "was killed by SIGKILL")

    assert ["ingress:b"] == world.ingresses.end()
    world.ingresses.on_ended("ingress:b", "was killed by SIGTERM")

    assert [] == list(world.ingresses.names)
