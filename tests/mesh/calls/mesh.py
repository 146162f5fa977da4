"""A mesh that serves services/echo, and everything that can be seen of it from outside."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from benchmarks.inspection import inspect
from pyserve.aio.mesh_channel import proof
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import MeshStatus, ReplicaStatus, read_status
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import eventually

ANSWER_TIMEOUT_S = 30.0
# A replica's start takes less than a second; the rest is for a busy machine.
RESTART_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class EchoMesh:
    """A mesh with one application.

    Attributes:
        running: Its processes.
        control: Calls to its controller.
        channel: To its ingress.
        stub: Of services/echo on the channel.
        token: The mesh's, which replicas ask for.
    """

    running: RunningMesh
    control: ControlClient
    channel: grpc.aio.Channel
    stub: echo_pb2_grpc.EchoAsyncStub
    token: bytes

    @property
    def address(self) -> str:
        """Where the ingress listens."""
        return self.running.address

    @property
    def proof(self) -> tuple[tuple[str, str | bytes], ...]:
        """The metadata that replicas ask for."""
        return proof(self.token)

    def channel_to(self, replica: ReplicaStatus) -> grpc.aio.Channel:
        """Return a channel to one replica that goes past the ingress; the caller closes it.

        Its calls have to carry ``proof``.
        """
        return grpc.aio.insecure_channel(replica.address)

    def status(self) -> MeshStatus:
        """Return what runs, and how many calls the ingress holds."""
        return read_status(self.control.status())

    def replicas(self) -> list[ReplicaStatus]:
        """Return the replicas that serve."""
        (deployment,) = self.status().applications["default"].deployments.values()
        return [each for each in deployment.replicas if each.state == "RUNNING"]

    def router_in_flight(self) -> Mapping[str, int]:
        """Return how many calls the ingress has sent to each replica, by its id."""
        return self.status().ingress.in_flight_of_replica

    async def in_flight(self) -> dict[str, int]:
        """Return every counter of calls that is not zero: of ingress, router and handlers."""
        return (await inspect(self.status(), self.token)).in_flight()

    async def settled(self) -> None:
        """Wait until no call is in flight anywhere."""

        async def nothing() -> bool:
            try:
                return not await self.in_flight()
            except grpc.aio.AioRpcError as error:
                # A replica that is full does not take the question either.
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                return False

        await eventually(nothing, what="every counter of calls in flight is zero")

    async def count(self) -> echo_pb2.CountReply:
        """Return how the calls of the only replica ended."""
        return await self.stub.Count(echo_pb2.CountRequest(), timeout=ANSWER_TIMEOUT_S)

    async def parked(self, calls: int) -> None:
        """Wait until so many calls wait for a replica."""
        await eventually(
            lambda: self.status().ingress.parked == calls, what=f"{calls} calls are parked"
        )

    async def sent(self, calls: int) -> None:
        """Wait until so many calls are at replicas."""
        await eventually(
            lambda: sum(self.router_in_flight().values()) == calls, what=f"{calls} calls are sent"
        )


@asynccontextmanager
async def echo_mesh(
    target: str = "tests.mesh.calls.apps:echo", *, development: bool = False, **options: object
) -> AsyncIterator[EchoMesh]:
    """Run a mesh until the block ends; then it has to drain, and to leave nothing.

    Args:
        target: What ``pyserve run`` is given.
        development: Whether clients may see the texts of exceptions.
        options: Of the deployment.
    """
    arguments = [f"{name}={json.dumps(value)}" for name, value in options.items()]
    if development:
        arguments.append("--development")
    with running_mesh(target, *arguments) as running:
        address = find_mesh(read_settings({"PYSERVE_HOME": str(running.home)}))
        assert address is not None
        control = ControlClient(address)
        try:
            async with grpc.aio.insecure_channel(running.address) as channel:
                stub = echo_pb2_grpc.EchoStub(channel)
                yield EchoMesh(running, control, channel, stub, address.token)
        finally:
            control.close()
