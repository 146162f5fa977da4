"""``get_replica_context()``: who a replica is, and its number among the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pyserve
from pyserve.schema import ReplicaRank
from pyserve.types import ReplicaId
from tests.mesh.apps.who import Who
from tests.support.waiting import wait_until

_REPLICAS = 3


@pytest.fixture(scope="module")
def mesh() -> Iterator[None]:
    pyserve.start(address="127.0.0.1:0")
    try:
        yield
    finally:
        pyserve.shutdown()


@pytest.fixture
def who(mesh: None) -> pyserve.DeploymentHandle:
    return pyserve.run(Who.options(num_replicas=_REPLICAS).bind())


def _answers(handle: pyserve.DeploymentHandle) -> list[dict[str, Any]]:
    return handle.broadcast("__call__").result(timeout_s=30)


def _ranks(handle: pyserve.DeploymentHandle) -> list[tuple[int, int, int]]:
    return sorted(answer["rank"] for answer in _answers(handle))


@pytest.mark.slow
@pytest.mark.parity("G-21")
def test_replicas_are_numbered_without_gaps(who: pyserve.DeploymentHandle):
    found = _answers(who)

    assert [(n, 0, n) for n in range(_REPLICAS)] == sorted(each["rank"] for each in found)
    for each in found:
        assert _REPLICAS == each["world_size"]
        assert (each["rank"][0], _REPLICAS) == each["at_start"]
        assert each["is_me"]
        assert each["replica_id"] == f"Who#{each['unique_id']}"


@pytest.mark.slow
@pytest.mark.parity("G-21")
def test_a_replacement_has_the_number_of_the_dead(who: pyserve.DeploymentHandle):
    before = {each["pid"]: each["rank"] for each in _answers(who)}

    with pytest.raises(pyserve.DeploymentUnavailable):
        who.die.remote().result(timeout_s=30)

    def is_whole_again() -> bool:
        try:
            now = {each["pid"]: each["rank"] for each in _answers(who)}
        except pyserve.RequestError:  # It goes away during the call.
            return False
        return len(now) == _REPLICAS and now != before

    wait_until(is_whole_again, 30)
    assert [(n, 0, n) for n in range(_REPLICAS)] == _ranks(who)


@pytest.mark.slow
@pytest.mark.parity("G-21")
def test_fewer_replicas_have_the_first_numbers(who: pyserve.DeploymentHandle):
    before = {each["pid"] for each in _answers(who)}
    fewer = pyserve.run(Who.options(num_replicas=2).bind())

    assert [(0, 0, 0), (1, 0, 1)] == _ranks(fewer)
    assert {each["pid"] for each in _answers(fewer)} < before
    assert {2} == {each["world_size"] for each in _answers(fewer)}


@pytest.mark.slow
async def test_a_chosen_replica_says_where_it_is(mesh: None):
    handle = pyserve.run(Who.bind())

    async with handle.choose_replica() as selection:
        assert "127.0.0.1" == selection.node_ip
        told = await handle.dispatch(selection)

    assert selection.replica_id.unique_id == told["unique_id"]
    assert "" == selection.availability_zone


@pytest.mark.parity("G-21")
async def test_the_only_replica_of_local_testing_mode_is_the_first():
    handle = pyserve.run(Who.bind(), name="local", local_testing_mode=True)
    try:
        told = await handle.remote()
        async with handle.choose_replica() as selection:
            assert ("127.0.0.1", "Who#local") == (selection.node_ip, selection.replica_id)
    finally:
        pyserve.delete("local")

    assert ((0, 0, 0), 1, "local", True) == (
        told["rank"],
        told["world_size"],
        told["unique_id"],
        told["is_me"],
    )


def test_a_context_for_tests_has_a_number():
    with pyserve.testing.replica(rank=2, world_size=4):
        context = pyserve.get_replica_context()

    assert (ReplicaRank(2, 0, 2), 4) == (context.rank, context.world_size)


def test_a_replicas_id_is_text_with_a_unique_part():
    name = ReplicaId("Echo#k3f2x")

    assert ("Echo#k3f2x", "k3f2x") == (str(name), name.unique_id)
    assert "Echo#k3f2x" == name
    assert "alone" == ReplicaId("alone").unique_id
