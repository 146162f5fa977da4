"""Code that holds the event loop of a replica harms its own calls only."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import running_mesh
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
TARGET = "tests.mesh.concurrency.apps:blocking"
BLOCKED_S = 5.0
# Far below BLOCKED_S, far above what a busy machine needs.
PROMPTLY_S = 3.0


async def blocked(stub: echo_pb2_grpc.EchoAsyncStub, seconds: float) -> asyncio.Task[bytes]:
    """Let a handler hold the replica's loop, and return its call once it does."""

    async def block() -> bytes:
        request = echo_pb2.EchoRequest(payload=str(seconds).encode())
        return (await stub.EchoSuspend(request, timeout=30)).payload

    task = asyncio.create_task(block())

    async def stands_still() -> bool:
        code = await stub.Echo(echo_pb2.EchoRequest(), timeout=0.2).code()
        return code is grpc.StatusCode.DEADLINE_EXCEEDED

    await eventually(stands_still)
    return task


@pytest.mark.parity("S-14")
@pytest.mark.parity("S-55")
@pytest.mark.parametrize("separate", ["0", "1"])
async def test_deadlines_and_health_are_answered_while_code_blocks(
    separate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both modes: the data plane does not need the loop."""
    monkeypatch.setenv("PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD", separate)
    with running_mesh(TARGET) as mesh:
        async with grpc.aio.insecure_channel(mesh.address) as channel:
            stub: echo_pb2_grpc.EchoAsyncStub = echo_pb2_grpc.EchoStub(channel)  # type: ignore[assignment]
            await stub.Echo(echo_pb2.EchoRequest(), timeout=30)
            task = await blocked(stub, BLOCKED_S)

            begun_s = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Echo(echo_pb2.EchoRequest(), timeout=0.3)
            assert grpc.StatusCode.DEADLINE_EXCEEDED is caught.value.code()
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=PROMPTLY_S)
            assert health_pb2.HealthCheckResponse.SERVING == answer.status
            assert time.monotonic() - begun_s < PROMPTLY_S
            assert not task.done()

            assert b"woke" == await task
            await stub.Echo(echo_pb2.EchoRequest(), timeout=30)
            await eventually(lambda: "the event loop has stood still for 0.1 s" in mesh.output())


@pytest.mark.parity("S-14")
async def test_the_log_names_the_line_that_blocks() -> None:
    with running_mesh(TARGET) as mesh:
        async with grpc.aio.insecure_channel(mesh.address) as channel:
            stub: echo_pb2_grpc.EchoAsyncStub = echo_pb2_grpc.EchoStub(channel)  # type: ignore[assignment]
            await stub.EchoSuspend(echo_pb2.EchoRequest(payload=b"1.5"), timeout=30)
            await eventually(lambda: "in EchoSuspend" in mesh.output())
            assert "time.sleep(float(request.payload))" in mesh.output()
            assert 1 == mesh.output().count("in EchoSuspend")


@pytest.mark.parity("S-55")
async def test_a_replica_whose_code_never_returns_is_replaced() -> None:
    """Its checks run in a thread of their own, and miss the loop's answer."""
    with running_mesh(TARGET, "period_s=0.2", "timeout_s=0.5") as mesh:
        async with grpc.aio.insecure_channel(mesh.address) as channel:
            stub: echo_pb2_grpc.EchoAsyncStub = echo_pb2_grpc.EchoStub(channel)  # type: ignore[assignment]
            await stub.Echo(echo_pb2.EchoRequest(), timeout=30)
            task = await blocked(stub, 10.0)

            async def is_answered() -> bool:
                code = await stub.Echo(echo_pb2.EchoRequest(), timeout=1.0).code()
                return code is grpc.StatusCode.OK

            await eventually(is_answered, 20)
            assert not task.done()
            task.cancel()
