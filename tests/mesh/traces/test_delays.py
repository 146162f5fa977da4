"""Where the time of a call went in the replicas that it came to."""

from __future__ import annotations

import grpc
import pytest

from pyserve import aio
from pyserve.gateway.front import delays_of
from pyserve.replica.mesh_methods import DELAYS_OF
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from tests.mesh.traces.test_traces import get
from tests.support.mesh import RunningMesh
from tests.support.session import attached

TRACE = "4af7651916cd43dd8448eb211c80319c"


@pytest.mark.slow
async def test_replicas_say_what_a_call_has_waited_for(mesh: RunningMesh):
    # Not sampled: it is known because few calls are.
    get(mesh, TRACE, flags="00", **{"x-request-id": "why-so-slow"})

    with attached(mesh.home) as session:
        table = session._router._open().table

        async def asked(deployment: str) -> dict[str, list[dict[str, object]]]:
            key = DeploymentKey(ApplicationName("default"), DeploymentName(deployment))
            ((replica, _, _),) = session.caller(key).replicas()
            return await delays_of(table, key, replica, "why-so-slow")  # type: ignore[arg-type]

        door, scores = await asked("Door"), await asked("Scores")
    called = ["Pipeline.naive", "Scores.score", "Scores.score", "Scores.is_asked"]
    assert [f"default/{each}" for each in called] == [each["to"] for each in door["calls"]]
    assert ["why-so-slow"] * 2 == scores["batches"][0]["members"]
    assert ("full", 2) == (scores["batches"][0]["reason"], scores["batches"][0]["size"])


@pytest.mark.slow
async def test_clients_cannot_ask(mesh: RunningMesh):
    async with aio.insecure_channel(mesh.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(DELAYS_OF)(b"why-so-slow")

    assert grpc.StatusCode.UNIMPLEMENTED == refused.value.code()


@pytest.mark.slow
@pytest.mark.parametrize("header", [{"x-pyserve-explain": "1"}, {}])
def test_whoever_asks_is_told_of_the_calls_below_too(mesh: RunningMesh, header: dict[str, str]):
    assert bool(header) == get(mesh, TRACE, flags="00", **header)["asked"]
