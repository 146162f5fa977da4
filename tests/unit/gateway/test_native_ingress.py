"""The native listener in front of one replica: idle clients, clients that go, no replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import httpx
import pytest

from pyserve import _router, aio
from pyserve.aio import HttpCall, ServerSettings
from tests.support.routes import native_route, replica_view
from tests.support.waiting import eventually

_TOKEN = b"token"
# Of what should come soon: its end would mean that it never comes.
_PATIENCE_S = 30.0
_IDLE_S = 0.25
# The preface of HTTP/2 and an empty SETTINGS frame.
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_GOAWAY = 7

Call = grpc.aio.UnaryUnaryCall[bytes, bytes]


@dataclass
class Replica:
    """Answers a call once the test says so, and counts those that were cancelled."""

    began: int = 0
    cancelled: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def http(self, call: HttpCall) -> None:
        """Answer plain HTTP."""
        await self._wait()
        call.respond(200, (), b"done")

    async def unary(self, _request: bytes, _context: aio.ServicerContext) -> bytes:
        """Answer a call of gRPC."""
        await self._wait()
        return b"done"

    async def _wait(self) -> None:
        self.began += 1
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@dataclass(frozen=True)
class Front:
    """A listener, where it is, and what is behind it."""

    native: _router.Ingress
    address: str
    table: _router.RoutingTable
    server: aio.Server
    replica: Replica

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection that has said nothing yet."""
        host, _, port = self.address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    def stat(self, name: str) -> int:
        """Return one of the counters."""
        return self.native.stats()[name]


@asynccontextmanager
async def front(
    *, idle_timeout_s: float = 3600.0, places: int = 1, queued_max: int = 10
) -> AsyncIterator[Front]:
    """Listen in front of one replica; without a place there is none."""
    replica = Replica()
    server = aio.Server(settings=ServerSettings(replica_id="r-1", token=_TOKEN, http=replica.http))
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Call": grpc.unary_unary_rpc_method_handler(replica.unary)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("app.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    table = _router.RoutingTable(node="n", zone="", token=_TOKEN, seed=1)
    known = replica_view("r-1", port, max(places, 1), node="other")
    route = native_route(
        [known] if places else [],
        {"app.Echo": ["Call"]},
        max_queued_requests=queued_max,
        max_request_bytes=1024,
        http_prefixes=["/app"],
    )
    table.apply(1, [route])
    native = _router.Ingress(
        table,
        addresses=["127.0.0.1:0"],
        io_threads=1,
        tls=None,
        limits=_router.IngressLimits(idle_timeout_s=idle_timeout_s),
    )
    (address,) = native.start()
    try:
        yield Front(native, address, table, server, replica)
    finally:
        native.drain()
        native.stop()
        await server.stop(0)


def call_of(channel: grpc.aio.Channel, path: str = "/app.Echo/Call") -> Call:
    """Begin a call of gRPC."""
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    call: Call = method(b"", timeout=_PATIENCE_S)
    return call


@pytest.mark.parity("S-65")
async def test_http2_connection_without_a_call_is_told_to_go_and_closed() -> None:
    async with front(idle_timeout_s=_IDLE_S) as opened:
        reader, writer = await opened.connect()
        writer.write(_HTTP2_GREETING)
        received = await asyncio.wait_for(reader.read(), _PATIENCE_S)
        writer.close()

    assert _GOAWAY in _frame_kinds(received)


def _frame_kinds(received: bytes) -> list[int]:
    """Return the kinds of the frames of a whole connection (RFC 9113, section 4.1)."""
    kinds, offset = [], 0
    while offset < len(received):
        kinds.append(received[offset + 3])
        offset += 9 + int.from_bytes(received[offset : offset + 3], "big")
    return kinds


@pytest.mark.parity("S-65")
async def test_connection_with_a_call_is_not_idle() -> None:
    async with (
        front(idle_timeout_s=_IDLE_S) as opened,
        httpx.AsyncClient(timeout=_PATIENCE_S) as client,
    ):
        answer = asyncio.create_task(client.get(f"http://{opened.address}/app"))
        await eventually(lambda: 1 == opened.replica.began)
        # Time itself is what passes here.
        await asyncio.sleep(2 * _IDLE_S)
        opened.replica.may_answer.set()

        assert b"done" == (await answer).content


@pytest.mark.parity("G-46")
async def test_clients_that_go_are_counted_as_499_and_cancelled_and_their_calls_end() -> None:
    async with front() as opened:
        _, writer = await opened.connect()
        writer.write(b"GET /app HTTP/1.1\r\nhost: x\r\n\r\n")
        await eventually(lambda: 1 == opened.replica.began)
        assert (0, 0) == (opened.stat("http_499"), opened.stat("cancelled_by_client"))
        writer.close()
        await eventually(lambda: 1 == opened.replica.cancelled)
        await eventually(lambda: 0 == opened.native.in_flight())

        async with grpc.aio.insecure_channel(opened.address) as channel:
            call = call_of(channel)
            await eventually(lambda: 2 == opened.replica.began)
            call.cancel()
            assert grpc.StatusCode.CANCELLED is await call.code()
            await eventually(lambda: 2 == opened.replica.cancelled)

        assert (1, 2) == (opened.stat("http_499"), opened.stat("cancelled_by_client"))


@pytest.mark.parity("G-46")
@pytest.mark.parametrize("dies", [False, True])
async def test_calls_that_lose_their_replica_are_503_and_unavailable(dies: bool) -> None:
    """It dies under them, or the deployment ends while they wait for a place there."""
    async with (
        front(places=2 if dies else 0) as opened,
        httpx.AsyncClient(base_url=f"http://{opened.address}", timeout=_PATIENCE_S) as client,
        grpc.aio.insecure_channel(opened.address) as channel,
    ):
        plain = asyncio.create_task(client.get("/app"))
        call = call_of(channel)
        if dies:
            await eventually(lambda: 2 == opened.replica.began)
            await opened.server.stop(0)
        else:
            await eventually(lambda: 2 == opened.table.stats()["app/Echo"]["parked"])
            opened.table.apply(2, [])

        answer = await plain
        assert (503, "replica" if dies else "ingress") == (
            answer.status_code,
            answer.headers["pyserve-answered-by"],
        )
        assert grpc.StatusCode.UNAVAILABLE is await call.code()


@pytest.mark.parity("G-46")
async def test_full_queue_and_unknown_routes_have_their_statuses_on_both_ways_in() -> None:
    async with (
        front(queued_max=0) as opened,
        httpx.AsyncClient(base_url=f"http://{opened.address}", timeout=_PATIENCE_S) as client,
        grpc.aio.insecure_channel(opened.address) as channel,
    ):
        running = asyncio.create_task(client.get("/app"))
        await eventually(lambda: 1 == opened.replica.began)
        codes = []
        for path in ("/app.Echo/Call", "/app.Echo/Other", "/app.Nobody/Call"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call_of(channel, path)
            codes.append(caught.value.code())
        statuses = [(await client.get(path)).status_code for path in ("/app", "/other")]
        opened.replica.may_answer.set()

        assert 200 == (await running).status_code
        assert [503, 404] == statuses
        assert [
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.UNIMPLEMENTED,
            grpc.StatusCode.UNIMPLEMENTED,
        ] == codes
