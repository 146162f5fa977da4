"""``Cordon`` over real gRPC: routers know of it when the answer comes."""

import asyncio

import grpc
import pytest

from pyserve.aio.mesh_channel import proof
from pyserve.wire.v1 import control_pb2
from tests.mesh.control.test_services import TIMEOUT_S, TOKEN, Mesh, mesh

__all__ = ["mesh"]


async def cordon(mesh: Mesh, target: str, *, undo: bool = False) -> control_pb2.CordonReply:
    return await mesh.control.Cordon(
        control_pb2.CordonRequest(target=target, undo=undo),
        metadata=proof(TOKEN),
        timeout=TIMEOUT_S,
    )


async def announced(mesh: Mesh) -> list[str]:
    """Return the replicas of which a router that asks now is told."""
    call = mesh.watch(all=True)
    async with asyncio.timeout(TIMEOUT_S):
        snapshot = await call.read()
    call.cancel()
    (view,) = snapshot.changed
    return [each.replica_id for each in view.replicas]


async def test_routers_know_of_it_when_the_answer_comes(mesh):
    await mesh.deploy("Echo", num_replicas=2)
    first, second = (item.order.replica_id for item in mesh.launcher.started)

    assert [first] == list((await cordon(mesh, first)).replicas)
    assert [second] == await announced(mesh)
    states = {item.replica_id: item.state for item in (await mesh.status())["Echo"].replicas}
    assert {first: "CORDONED", second: "RUNNING"} == states

    reply = await cordon(mesh, "node:here")
    assert [second] == list(reply.replicas)
    assert "no replica in rotation" in reply.warnings[0]
    assert [] == await announced(mesh)
    assert 2 == len(mesh.launcher.started)

    await cordon(mesh, "node:here", undo=True)
    await cordon(mesh, first, undo=True)
    assert {first, second} == set(await announced(mesh))


async def test_an_unknown_name_is_refused_with_those_that_there_are(mesh):
    await mesh.deploy("Echo")
    (replica,) = mesh.launcher.started

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cordon(mesh, "Echo#none")
    assert grpc.StatusCode.NOT_FOUND is caught.value.code()
    assert f"there is: {replica.order.replica_id}" in (caught.value.details() or "")
