"""500 calls a second through every door while replicas are replaced, added and taken away.

The calls follow a schedule, whatever becomes of those before them; each is answered, begins once
in a replica, and none fails: also when the controller is killed in the middle of a change.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import grpc
import pytest

import pyserve
from benchmarks.chaos.load import OpenLoop
from pyserve.api.graph import pack
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import MeshStatus, ReplicaStatus, read_status
from pyserve.errors import MeshUnavailable, PyserveError
from pyserve.types import ApplicationName
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.changes.apps import app
from tests.mesh.start.processes import address_of, standing
from tests.support.session import attached
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_RATE_PER_S = 500.0
_TIMEOUT_S = 30.0
# A look costs milliseconds, which are left to the calls.
_LOOK_INTERVAL_S = 0.05
_SETTLE_TIMEOUT_S = 50.0

Replicas = list[ReplicaStatus]
Middle = Callable[[set[str], Replicas], bool]


class Mesh:
    """A mesh that stays, and what is deployed there."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = {"PYSERVE_HOME": environment["PYSERVE_HOME"]}
        self.journal = Path(environment["PYSERVE_HOME"]) / "journal"
        self.release = 1

    def _client(self) -> ControlClient:
        address = find_mesh(read_settings(self._environment))
        if address is None:
            raise MeshUnavailable("its controller has just been killed")
        return ControlClient(address)

    def status(self) -> MeshStatus:
        with closing(self._client()) as client:
            return read_status(client.status())

    async def replicas(self) -> Replicas:
        """Return the replicas of both deployments; none while the controller is down."""
        try:
            found = await asyncio.to_thread(self.status)
        except MeshUnavailable:
            return []
        finally:
            await asyncio.sleep(_LOOK_INTERVAL_S)
        deployments = found.applications["default"].deployments.values()
        return [replica for each in deployments for replica in each.replicas]

    async def names(self) -> set[str]:
        """Return the names of those replicas."""
        return {each.replica_id for each in await self.replicas()}

    def deploy(self, replicas: int) -> bool:
        """Deploy; return whether the controller has lived to say that it serves."""
        packed = pack(
            app(self.journal, release=self.release, replicas=replicas), ApplicationName("default")
        )
        with suppress(MeshUnavailable), closing(self._client()) as client:
            events = client.deploy(packed, route_prefix="/", timeout_s=_SETTLE_TIMEOUT_S)
            return any(event.HasField("deployed") for event in events)
        return False


class HttpClient:
    """POSTs over as many connections as there are requests at a time; costs little."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, content: str) -> str:
        """Return the body of the answer; ``OSError`` if it is none of status 200."""
        pair = self._idle.pop() if self._idle else await self._connect()
        reader, writer = pair
        length = len(content)
        writer.write(f"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode())
        writer.write(content.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        body = (await reader.readexactly(length)).decode()
        self._idle.append(pair)
        if not head.startswith("http/1.1 200 "):
            raise OSError(f"{head}{body}")
        return body

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._idle))


class Load:
    """Calls of four kinds, each with a number of its own."""

    def __init__(self, channel: pyserve.aio.Channel, client: HttpClient) -> None:
        self._client = client
        self._stub: echo_pb2_grpc.EchoAsyncStub = echo_pb2_grpc.EchoStub(channel)
        self._numbers = itertools.count()
        self._handle = pyserve.get_deployment_handle("Back", "default")
        ways = (self._over_grpc, self._over_http, self._by_two_replicas, self._by_handle)
        self.loop = OpenLoop([self._numbered(way) for way in ways], _RATE_PER_S)
        self.asked: list[str] = []

    def _numbered(self, way: Callable[[str], Awaitable[str]]) -> Callable[[], Awaitable[str]]:
        async def call() -> str:
            number = str(next(self._numbers))
            self.asked.append(number)
            try:
                answer = await way(number)
            except (grpc.RpcError, OSError, EOFError, PyserveError) as error:
                return f"{way.__name__}: {error!r}"
            return "OK" if answer == number else f"{way.__name__}: {answer}"

        return call

    async def _over_grpc(self, number: str) -> str:
        request = echo_pb2.EchoRequest(payload=number.encode())
        return (await self._stub.Echo(request, timeout=_TIMEOUT_S)).payload.decode()

    async def _by_two_replicas(self, number: str) -> str:
        request = echo_pb2.EchoRequest(payload=number.encode())
        return (await self._stub.EchoSuspend(request, timeout=_TIMEOUT_S)).payload.decode()

    async def _over_http(self, number: str) -> str:
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._client.post(number)

    async def _by_handle(self, number: str) -> str:
        answer: str = await self._handle.options(timeout_s=_TIMEOUT_S).remote(number)
        return answer


@asynccontextmanager
async def calling(mesh: Mesh, address: str) -> AsyncIterator[Load]:
    """Have calls until the block ends; then each of them has been answered well, and once."""
    stop = asyncio.Event()
    client = HttpClient(address)
    async with pyserve.aio.insecure_channel(address) as channel:
        load = Load(channel, client)
        driving = asyncio.create_task(load.loop.run(stop))
        try:
            yield load
        finally:
            stop.set()
            await driving
            await client.close()
    assert {"OK": len(load.asked)} == dict(load.loop.ended)
    begun = Counter(mesh.journal.read_text().split())
    assert dict.fromkeys(load.asked, 1) == dict(begun)


async def change(mesh: Mesh, replicas: int, killed_when: Middle | None) -> None:
    """Deploy, and see the replicas become as many; kill the controller in the middle, if said."""
    before = await mesh.names()
    deploying = asyncio.create_task(asyncio.to_thread(mesh.deploy, replicas))
    if killed_when is not None:
        killed_pid = (await asyncio.to_thread(mesh.status)).controller_pid

        async def is_time() -> bool:
            return killed_when(before, await mesh.replicas())

        await eventually(is_time, _SETTLE_TIMEOUT_S, "the change has begun")
        os.kill(killed_pid, signal.SIGKILL)
    assert await deploying or killed_when is not None

    async def is_whole() -> bool:
        found = await mesh.replicas()
        return len(found) == 2 * replicas and {"RUNNING"} == {each.state for each in found}

    await eventually(is_whole, _SETTLE_TIMEOUT_S, "as many replicas as were deployed")


def is_half_replaced(before: set[str], found: Replicas) -> bool:
    """One of the new ones serves, and of the old ones some."""
    serving = {each.replica_id for each in found if each.state == "RUNNING"}
    return bool(serving - before) and bool(serving & before)


def is_growing(before: set[str], found: Replicas) -> bool:
    """One is being started."""
    return any(each.state == "STARTING" and each.replica_id not in before for each in found)


def is_shrinking(before: set[str], found: Replicas) -> bool:
    """One has been told to end."""
    return any(each.state == "STOPPING" and each.replica_id in before for each in found)


async def all_changes(mesh: Mesh, *middles: Middle | None) -> None:
    """Replace two replicas of each, make them four, and two again."""
    rolling, growing, shrinking = middles
    before = await mesh.names()
    mesh.release += 1
    await change(mesh, 2, rolling)
    assert before.isdisjoint(await mesh.names()), "another release runs in others"
    await change(mesh, 4, growing)
    await change(mesh, 2, shrinking)


@pytest.mark.long
@pytest.mark.parity("G-17", "G-66")
@pytest.mark.parametrize(
    "middles",
    [(None, None, None), (is_half_replaced, is_growing, is_shrinking)],
    ids=["controller_stays", "controller_killed_in_the_middle"],
)
async def test_no_call_is_lost_while_replicas_change(
    mesh_environment: dict[str, str], middles: tuple[Middle | None, ...]
) -> None:
    mesh = Mesh(mesh_environment)
    with standing(mesh_environment):
        await asyncio.to_thread(mesh.deploy, 2)
        address = await asyncio.to_thread(address_of, mesh_environment)
        with attached(Path(mesh_environment["PYSERVE_HOME"])):
            async with calling(mesh, address):
                await all_changes(mesh, *middles)
