"""A replica's stream against a controller that refuses, vanishes and comes back."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from pyserve.errors import MeshError
from pyserve.replica.membership import Membership
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc
from tests.support.waiting import eventually

TOKEN = b"\x00token"
ASSIGN = mesh_pb2.ReplicaCommand(
    assign=mesh_pb2.Assign(replica_id="Echo#1", deployment_version="v1")
)
DRAIN = mesh_pb2.ReplicaCommand(drain=mesh_pb2.Drain(grace_s=3.0))


class FakeController(mesh_pb2_grpc.MeshServicer):
    """Records what replicas say, by kind, and sends what it is told to."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.commands: asyncio.Queue[mesh_pb2.ReplicaCommand | None] = asyncio.Queue()
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.port = 0

    async def Join(self, requests: Any, context: Any) -> AsyncIterator[mesh_pb2.ReplicaCommand]:
        assert TOKEN == dict(context.invocation_metadata())["pyserve-token-bin"]
        if self.refusal is not None:
            await context.abort(*self.refusal)
        self.commands = asyncio.Queue()  # What an earlier stream left is not for this one.
        reader = asyncio.create_task(self._read(requests, self.commands))
        try:
            yield ASSIGN
            commands = self.commands
            while (command := await commands.get()) is not None:
                yield command
        finally:
            reader.cancel()

    async def _read(self, requests: Any, commands: asyncio.Queue[Any]) -> None:
        async for message in requests:
            kind = message.WhichOneof("kind")
            await self.heard.put((kind, getattr(message, kind)))
        await commands.put(None)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 1)])
        mesh_pb2_grpc.add_MeshServicer_to_server(self, server)
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)

    async def next(self, kind: str) -> Any:
        heard, message = await asyncio.wait_for(self.heard.get(), 10)
        assert kind == heard
        return message


def membership(controller: FakeController, commands: list[str] | None = None) -> Membership:
    seen = commands if commands is not None else []
    return Membership(
        f"127.0.0.1:{controller.port}",
        TOKEN,
        mesh_pb2.Hello(application="default", deployment="Echo", version="0.1.0"),
        lambda command: seen.append(str(command.WhichOneof("kind"))),
    )


@pytest.fixture
async def controller() -> AsyncIterator[FakeController]:
    fake = FakeController()
    async with fake.serving():
        yield fake


async def test_it_joins_says_ready_and_leaves_in_order(controller: FakeController) -> None:
    member = membership(controller)
    assign = await member.join()
    assert "Echo#1" == assign.replica_id
    assert "Echo" == (await controller.next("hello")).deployment
    await member.announce(mesh_pb2.Ready(services=["pkg.Echo"]))
    assert ["pkg.Echo"] == list((await controller.next("ready")).services)
    await member.report_health(healthy=False, reason="ill")
    assert "ill" == (await controller.next("health")).reason
    assert await member.fail(summary="no", traceback="trace", user_code=True)
    assert "no" == (await controller.next("failed")).summary
    await member.leave()


async def test_commands_after_the_first_assign_are_handed_on(controller: FakeController) -> None:
    commands: list[str] = []
    member = membership(controller, commands)
    await member.join()
    await controller.commands.put(DRAIN)
    await eventually(lambda: commands)
    assert ["drain"] == commands
    await member.leave()


async def test_a_lost_controller_is_joined_again_without_a_new_construction() -> None:
    fake = FakeController()
    async with fake.serving():
        member = membership(fake)
        await member.join()
        await fake.next("hello")
        await member.announce(mesh_pb2.Ready(services=["pkg.Echo"], deployment_version="v1"))
        await fake.next("ready")
    # Messages that are sent before the loss is noticed are lost with the stream.
    await eventually(partial(told_nobody, member))
    async with fake.serving():
        hello = await fake.next("hello")
        assert "Echo#1" == hello.replica_id
        assert "v1" == (await fake.next("ready")).deployment_version
        await member.leave()


@pytest.mark.parity("G-76")
async def test_routing_stats_outlive_the_controller_that_was_told() -> None:
    """Those that come while there is none, too: another one is told after Ready."""
    fake = FakeController()
    async with fake.serving():
        member = membership(fake)
        await member.join()
        await fake.next("hello")
        await member.announce(mesh_pb2.Ready(replica_metadata_json='{"gpu":1}'))
        await fake.next("ready")
        await member.report_routing_stats('{"load":1}')
        assert '{"load":1}' == (await fake.next("routing_stats")).json
    await eventually(partial(told_nobody, member))
    await member.report_routing_stats('{"load":2}')
    async with fake.serving():
        await fake.next("hello")
        assert '{"gpu":1}' == (await fake.next("ready")).replica_metadata_json
        assert '{"load":2}' == (await fake.next("routing_stats")).json
        await member.leave()


async def test_what_was_taken_on_is_said_after_a_new_join() -> None:
    fake = FakeController()
    async with fake.serving():
        member = membership(fake)
        await member.join()
        await fake.next("hello")
        await member.announce(mesh_pb2.Ready(config=1))
        await fake.next("ready")
        await member.report_reconfigured(mesh_pb2.Reconfigured(config=2))
        assert 2 == (await fake.next("reconfigured")).config
        await member.report_reconfigured(mesh_pb2.Reconfigured(config=3, summary="it raised"))
        assert "it raised" == (await fake.next("reconfigured")).summary
    await eventually(partial(told_nobody, member))
    async with fake.serving():
        await fake.next("hello")
        assert 2 == (await fake.next("ready")).config
        await member.leave()


async def told_nobody(member: Membership) -> bool:
    return not await member.fail(summary="", traceback="", user_code=False)


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAUTHENTICATED,
    ],
)
async def test_a_refusal_ends_the_first_join(
    controller: FakeController, code: grpc.StatusCode
) -> None:
    controller.refusal = (code, "versions 0.1 and 0.5 differ")
    member = membership(controller)
    with pytest.raises(MeshError, match=r"refused: versions 0\.1 and 0\.5 differ"):
        await member.join()
    await member.leave()


async def test_leaving_does_not_wait_for_a_controller_that_is_gone() -> None:
    fake = FakeController()
    async with fake.serving():
        member = membership(fake)
        await member.join()
    async with asyncio.timeout(5):
        await member.leave()


async def test_a_sign_of_life_is_given_without_the_replicas_loop() -> None:
    fake = FakeController()
    commands: list[str] = []
    async with fake.serving():
        member = membership(fake, commands)
        await member.join()
        await fake.next("hello")

        fake.commands.put_nowait(mesh_pb2.ReplicaCommand(ping=mesh_pb2.Ping()))

        await fake.next("pong")
        assert [] == commands
        await member.leave()


async def test_a_controller_that_is_lost_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeController()
    with caplog.at_level(logging.WARNING):
        async with fake.serving():
            member = membership(fake)
            await member.join()
        await eventually(lambda: caplog.records)
        async with fake.serving():
            # The channel dials by itself, and says nothing of its attempts.
            await fake.next("hello")
            await fake.next("hello")
            await member.leave()
    (record,) = caplog.records
    assert record.getMessage().startswith("lost the controller (")


async def test_a_controller_that_ends_the_stream_in_order_is_not_lost(
    controller: FakeController, caplog: pytest.LogCaptureFixture
) -> None:
    """It is joined again all the same, since it is there."""
    with caplog.at_level(logging.WARNING):
        member = membership(controller)
        await member.join()
        await controller.next("hello")
        controller.commands.put_nowait(None)
        await controller.next("hello")
        await member.leave()
    # The event loop's own are about grpcio's server, which shares it.
    assert [] == [each for each in caplog.records if each.name.startswith("pyserve")]
