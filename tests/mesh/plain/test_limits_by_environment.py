"""The limit of messages for deployments that set none, from the environment of the driver."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import running_mesh
from tests.support.session import attached

pytestmark = pytest.mark.slow
LIMIT_BYTES = 70_000


@pytest.mark.parity("S-79")
async def test_the_limit_holds_both_ways_and_not_for_handles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stubs get RESOURCE_EXHAUSTED, handles send their values in chunks."""
    monkeypatch.setenv("PYSERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH", str(LIMIT_BYTES))
    with running_mesh("services.echo.service:Echo") as mesh:
        async with grpc.aio.insecure_channel(mesh.address) as channel:
            stub: echo_pb2_grpc.EchoAsyncStub = echo_pb2_grpc.EchoStub(channel)  # type: ignore[assignment]
            for request, code in (
                (echo_pb2.PerformRequest(response_bytes=LIMIT_BYTES // 2), None),
                (echo_pb2.PerformRequest(payload=bytes(2 * LIMIT_BYTES), response_bytes=1), _FULL),
                (echo_pb2.PerformRequest(response_bytes=2 * LIMIT_BYTES), _FULL),
            ):
                assert code is await _failure(stub, request)
        with attached(mesh.home):
            handle = pyserve.DeploymentHandle("Echo", "default").options(_by_reference=False)
            large = echo_pb2.EchoRequest(payload=bytes(5 * LIMIT_BYTES))
            assert large.payload == (await handle.Echo.remote(large)).payload


_FULL = grpc.StatusCode.RESOURCE_EXHAUSTED


async def _failure(
    stub: echo_pb2_grpc.EchoAsyncStub, request: echo_pb2.PerformRequest
) -> grpc.StatusCode | None:
    try:
        await stub.Perform(request, timeout=30)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None
