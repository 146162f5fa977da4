"""Replicas that answer when the test says so, and native routers before them, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from pyserve import _router, aio
from pyserve.aio import ServerSettings
from pyserve.wire.v1 import mesh_pb2
from tests.support.routes import native_route, replica_view

TARGET = "app/Echo"
_PATH = "/app.Echo/Call"
_TOKEN = b"token"
_HOLD = b"hold"
_TIMEOUT_S = 30.0

Call = grpc.aio.UnaryUnaryCall[bytes, bytes]


@dataclass
class FakeReplica:
    """Answers with its own id; calls that ask to be held wait until the test opens the door.

    Attributes:
        id: Its name.
        places: Calls that its gate lets in.
        work_s: How long it takes over a call.
        node, zone: Where it claims to be.
        is_sick: It fails every call.
        began: Calls that its handler has seen.
    """

    id: str
    places: int = 100
    work_s: float = 0.0
    node: str = "elsewhere"
    zone: str = ""
    is_sick: bool = False
    began: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, port: int = 0) -> None:
        """Listen, on a free port by default."""
        settings = ServerSettings(replica_id=self.id, token=_TOKEN)
        self.server = aio.Server(settings=settings, maximum_concurrent_rpcs=self.places)
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Call": grpc.unary_unary_rpc_method_handler(self._call)
        }
        generic = grpc.method_handlers_generic_handler("app.Echo", handlers)
        self.server.add_generic_rpc_handlers((generic,))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        await self.server.start()

    async def _call(self, request: bytes, context: aio.ServicerContext) -> bytes:
        self.began += 1
        if self.is_sick:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not today")
        if request == _HOLD:
            await self.is_open.wait()
        await asyncio.sleep(self.work_s)
        return self.id.encode()

    def view(self) -> mesh_pb2.ReplicaView:
        """Return what a table has to know."""
        return replica_view(self.id, self.port, self.places, node=self.node, zone=self.zone)


class Router:
    """A table of one deployment on node "here" in zone "home", and a channel to it."""

    def __init__(
        self, replicas: Sequence[FakeReplica], options: Mapping[str, float | str] | None, seed: int
    ) -> None:
        self.table = _router.RoutingTable(node="here", zone="home", token=_TOKEN, seed=seed)
        options = dict(options or {})
        settings = mesh_pb2.RouterSettings(policy=str(options.pop("policy", "")))
        route = native_route(
            [replica.view() for replica in replicas],
            {"app.Echo": None},
            options=options,  # type: ignore[arg-type]  # The policy is out.
            max_queued_requests=1000,
            router=settings,
            idempotent_methods=[_PATH],
        )
        self.table.apply(1, [route])
        self.native = _router.Channel(TARGET, table=self.table)
        self._channel = aio.Channel(self.native)

    def call(
        self, *, hold: bool = False, pinned_to: str = "", timeout_s: float = _TIMEOUT_S
    ) -> Call:
        """Start a call; ``pinned_to`` names its replica."""
        channel = aio.Channel(self.native, replica_id=pinned_to) if pinned_to else self._channel
        request = _HOLD if hold else b""
        call: Call = channel.unary_unary(_PATH)(request, timeout=timeout_s)
        return call

    def stat(self, name: str) -> int:
        """Return one of the router's counters."""
        value = self.table.stats()[TARGET][name]
        assert isinstance(value, int)
        return value


@asynccontextmanager
async def fleet(
    *replicas: FakeReplica,
    options: Mapping[str, float | str] | None = None,
    routers: int = 1,
) -> AsyncIterator[list[Router]]:
    """Start the replicas, and so many routers that know nothing of each other."""
    for replica in replicas:
        await replica.start()
    made = [Router(replicas, options, seed) for seed in range(1, routers + 1)]
    try:
        yield made
    finally:
        for router in made:
            router.native.close()
        for replica in replicas:
            await replica.server.stop(0)
