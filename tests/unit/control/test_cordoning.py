"""The controller's part of a cordon: who hears of it, and when its answer comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pyserve.errors import MeshNotFound
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.test_reconfiguring import Mesh, outcome


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    mesh = Mesh()
    watch = mesh.deploy(1)
    await mesh.bring_up()
    assert "deployed" == await outcome(watch)
    yield mesh
    await mesh.controller.close()


def announced(mesh: Mesh) -> set[str]:
    """Return what a router that asks now is told."""
    registry = mesh.controller.registry
    watcher = registry.watch(None, lambda: None)
    update = registry.take(watcher)
    registry.unwatch(watcher)
    assert update is not None
    (view,) = mesh_pb2.WatchUpdate.FromString(update).changed
    return {each.replica_id for each in view.replicas}


async def test_the_answer_comes_when_the_view_is_published(mesh: Mesh) -> None:
    first, second = (ReplicaId(order.replica_id) for order in mesh.processes.orders)

    assert (first,) == (await mesh.controller.cordon(first, undo=False)).replicas
    assert {second} == announced(mesh)

    (application,) = mesh.controller.status().applications
    states = {each.replica_id: each.state for each in application.deployments[0].replicas}
    assert {first: "CORDONED", second: "RUNNING"} == states
    assert 2 == len(mesh.processes.orders)

    assert (first,) == (await mesh.controller.cordon(first, undo=True)).replicas
    assert {first, second} == announced(mesh)


async def test_a_cordoned_node_is_a_notice_of_the_mesh(mesh: Mesh) -> None:
    """These replicas have not said where they are."""
    with pytest.raises(MeshNotFound):
        await mesh.controller.cordon("node:here", undo=False)
    assert [] == list(mesh.controller.status().notices)

    mesh.controller.state.cordoned_nodes.add("here")
    (notice,) = mesh.controller.status().notices
    assert notice.startswith("node here is cordoned")
