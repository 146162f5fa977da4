"""Doors of a bare server: what its port speaks besides gRPC over HTTP/2.

How messages are transcoded is the business of the tests of the mesh's doors; here it is shown
that a server's own port has the same doors, and what is particular to it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

import pyserve.aio
from benchmarks.hostile.attacker import run as attack
from benchmarks.hostile.http2 import greeting
from pyserve.aio._http import HttpCall
from pyserve.aio._options import ServerSettings
from pyserve.aio._server import Server
from services.echo import echo_pb2, echo_pb2_grpc
from tests.contract.aio.sides import PATIENCE_S, within
from tests.support.authority import Authority

_ROOT = Path(__file__).parents[3]
_BUF = str(Path(sys.executable).with_name("buf"))
_ECHO = "/services.echo.Echo"
_CROWD = 60
_ENHANCE_YOUR_CALM = "11"


class Echo(echo_pb2_grpc.EchoServicer):
    """Replies with the request and the name of its caller, and fails on demand."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def Echo(self, request: echo_pb2.EchoRequest, context: Any) -> echo_pb2.EchoReply:
        if request.payload == b"fail":
            await context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")
        if request.payload == b"peer":
            return echo_pb2.EchoReply(payload=context.peer().encode())
        if request.payload == b"rights":
            call = context.call
            told = {"trusted": call.trusted, "framed": call.framed}
            told["metadata"] = [key for key, _ in context.invocation_metadata() or ()]
            return echo_pb2.EchoReply(payload=json.dumps(told).encode())
        if request.payload == b"wait":
            self.started.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return echo_pb2.EchoReply(payload=request.payload)

    async def EchoStream(
        self, request: echo_pb2.StreamRequest, context: Any
    ) -> AsyncIterator[echo_pb2.EchoReply]:
        del context
        for _ in range(request.messages):
            yield echo_pb2.EchoReply(payload=request.payload)


class Doors:
    """A server with the service, and clients of its port."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.echo = Echo()
        echo_pb2_grpc.add_EchoServicer_to_server(self.echo, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"

    def client(self, *, http2: bool) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://{self.address}", http1=not http2, http2=http2, timeout=PATIENCE_S
        )


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    """A server as users make it."""
    doors = Doors(pyserve.aio.server())
    await doors.server.start()
    yield doors
    await within(doors.server.stop(None))


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
async def client(request: pytest.FixtureRequest, doors: Doors) -> AsyncIterator[httpx.AsyncClient]:
    """A client that speaks one version of HTTP."""
    async with doors.client(http2=request.param == "HTTP/2") as client:
        yield client


async def test_connect_speaks_json(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{_ECHO}/Echo", json={"payload": "aGVsbG8="})
    assert (200, {"payload": "aGVsbG8="}) == (answer.status_code, answer.json())
    assert "application/json" == answer.headers["content-type"]
    assert not [name for name in answer.headers if name.startswith("pyserve-")]


async def test_grpc_web_speaks_protobuf(client: httpx.AsyncClient) -> None:
    message = echo_pb2.EchoRequest(payload=b"hello").SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    kind = {"content-type": "application/grpc-web+proto"}
    answer = await client.post(f"{_ECHO}/Echo", content=body, headers=kind)
    assert (200, body) == (answer.status_code, answer.content[: len(body)])
    assert 0x80 == answer.content[len(body)]
    assert b"grpc-status: 0" in answer.content.replace(b"grpc-status:0", b"grpc-status: 0")


async def test_failures_have_the_status_of_their_protocol(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{_ECHO}/Echo", json={"payload": "ZmFpbA=="})
    assert 404 == answer.status_code
    assert {"code": "not_found", "message": "nothing here"} == answer.json()
    answer = await client.post(f"{_ECHO}/Collect", json={})
    assert 415 == answer.status_code, "streams have content types of their own"
    answer = await client.post(f"{_ECHO}/PerformSync", json={})
    assert (501, "unimplemented") == (answer.status_code, answer.json()["code"])


async def test_what_is_not_there_is_404_and_what_is_not_spoken_415(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/other")
    assert 404 == answer.status_code
    assert "nothing is served at /other" in answer.text
    answer = await client.post(f"{_ECHO}/Echo", content=b"x", headers={"content-type": "text/x"})
    assert 415 == answer.status_code
    assert 200 == (await client.get("/-/healthz")).status_code


async def test_calls_know_their_client(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{_ECHO}/Echo", json={"payload": "cGVlcg=="})
    assert base64.b64decode(answer.json()["payload"]).startswith(b"ipv4:127.0.0.1:")


async def test_clients_that_leave_cancel(doors: Doors, client: httpx.AsyncClient) -> None:
    call = asyncio.ensure_future(client.post(f"{_ECHO}/Echo", json={"payload": "d2FpdA=="}))
    await within(doors.echo.started.wait())
    assert 1 == doors.server.native.in_flight(), "counted once"
    call.cancel()
    await client.aclose()  # over HTTP/2 this client tells of a cancel no earlier
    await within(doors.echo.cancelled.wait())


async def test_deadlines_hold(doors: Doors, client: httpx.AsyncClient) -> None:
    headers = {"connect-timeout-ms": "50"}
    answer = await client.post(f"{_ECHO}/Echo", json={"payload": "d2FpdA=="}, headers=headers)
    assert (504, "deadline_exceeded") == (answer.status_code, answer.json()["code"])
    await within(doors.echo.cancelled.wait())


async def test_grpc_goes_on_beside_the_doors(doors: Doors, client: httpx.AsyncClient) -> None:
    await client.post(f"{_ECHO}/Echo", json={})
    async with grpc.aio.insecure_channel(doors.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        reply = await within(stub.Echo(echo_pb2.EchoRequest(payload=b"x" * 100_000)))
        assert 100_000 == len(reply.payload)
        request = echo_pb2.StreamRequest(payload=b"y", messages=3)
        assert 3 == len([reply async for reply in stub.EchoStream(request)])


async def test_a_stop_ends_what_its_grace_has_not() -> None:
    doors = Doors(pyserve.aio.server())
    await doors.server.start()
    # Over HTTP/2 this client takes GOAWAY for the end of what is under way.
    async with doors.client(http2=False) as client:
        call = asyncio.ensure_future(client.post(f"{_ECHO}/Echo", json={"payload": "d2FpdA=="}))
        await within(doors.echo.started.wait())
        stopping = asyncio.ensure_future(doors.server.stop(0.05))
        answer = await within(call)
        assert (503, "unavailable") == (answer.status_code, answer.json()["code"])
        await within(stopping)
    assert doors.echo.cancelled.is_set()


async def test_a_full_server_says_so() -> None:
    doors = Doors(pyserve.aio.server(maximum_concurrent_rpcs=1))
    await doors.server.start()
    async with doors.client(http2=False) as client:
        waiting = asyncio.ensure_future(client.post(f"{_ECHO}/Echo", json={"payload": "d2FpdA=="}))
        await within(doors.echo.started.wait())
        answer = await client.post(f"{_ECHO}/Echo", json={})
        assert (429, "resource_exhausted") == (answer.status_code, answer.json()["code"])
        waiting.cancel()
        await within(doors.echo.cancelled.wait())
    await within(doors.server.stop(None))


async def test_what_a_server_ends_is_told_by_the_server() -> None:
    """A bare server has no ingress that could shut down."""
    doors = Doors(pyserve.aio.server())
    await doors.server.start()
    async with doors.client(http2=False) as client:
        request = {"payload": base64.b64encode(b"wait").decode()}
        waiting = asyncio.create_task(client.post(f"{_ECHO}/Echo", json=request))
        await within(doors.echo.started.wait())
        await within(doors.server.stop(None))
        answer = await within(waiting)
    assert (503, "unavailable") == (answer.status_code, answer.json()["code"])
    assert "the server is shutting down" == answer.json()["message"]


async def test_health_of_a_door_is_what_it_was_told() -> None:
    doors = Doors(pyserve.aio.server())
    await doors.server.start()
    async with doors.client(http2=False) as client:
        assert 200 == (await client.get("/-/healthz")).status_code
        doors.server.native.set_healthy(False)
        answer = await client.get("/-/healthz")
        assert (503, "the server is shutting down\n") == (answer.status_code, answer.text)
        assert 200 == (await client.post(f"{_ECHO}/Echo", json={})).status_code
    await within(doors.server.stop(None))


async def test_doors_can_be_shut() -> None:
    doors = Doors(pyserve.aio.server(options=[("pyserve.doors", 0)]))
    await doors.server.start()
    async with doors.client(http2=True) as client:
        answer = await client.post(f"{_ECHO}/Echo", json={})
        assert 415 == answer.status_code
    async with doors.client(http2=False) as client:
        with pytest.raises(httpx.TransportError):
            await client.post(f"{_ECHO}/Echo", json={})
    await within(doors.server.stop(None))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("are_open", [0, 1])
async def test_a_flood_of_pings_is_told_to_calm_down(are_open: int) -> None:
    doors = Doors(pyserve.aio.server(options=[("pyserve.doors", are_open)]))
    await doors.server.start()
    host, _, port = doors.address.rpartition(":")
    async with grpc.aio.insecure_channel(doors.address) as channel:
        echo = echo_pb2_grpc.EchoStub(channel).Echo
        flood = asyncio.create_task(
            asyncio.to_thread(attack, "pings", (host, int(port)), PATIENCE_S, until_closed=True)
        )
        while not flood.done():
            assert b"between" == (await within(echo(_request(b"between")))).payload
        outcome = await flood
    # A reset of the connection may overtake the GOAWAY, which is then lost.
    assert outcome.closed >= 1
    assert set(outcome.goaways) <= {_ENHANCE_YOUR_CALM, "none"}
    await within(doors.server.stop(None))


def _request(payload: bytes) -> echo_pb2.EchoRequest:
    return echo_pb2.EchoRequest(payload=payload)


@pytest.mark.parametrize("are_open", [0, 1])
async def test_a_crowd_at_rest_makes_whoever_has_rested_longest_go(are_open: int) -> None:
    """Of some thirty connections that have room; none of those that go loses a call."""
    options = [("pyserve.doors", are_open), ("pyserve.idle_connection_memory_mb", 1)]
    doors = Doors(pyserve.aio.server(options=options))
    await doors.server.start()
    host, _, port = doors.address.rpartition(":")
    writers = []
    async with grpc.aio.insecure_channel(doors.address) as channel:
        echo = echo_pb2_grpc.EchoStub(channel).Echo
        request = _request(b"still here")
        assert b"still here" == (await within(echo(request))).payload
        readers = []
        for _ in range(_CROWD):
            reader, writer = await within(asyncio.open_connection(host, int(port)))
            writer.write(greeting())
            readers.append(reader)
            writers.append(writer)
            # So that they come one after the other.
            assert await within(reader.readexactly(9))
        # The first of them has not heeded its GOAWAY, and is ended.
        received = await within(readers[0].read())
        assert received.endswith(bytes(8)), "no stream was looked at, and nothing is wrong"
        assert b"still here" == (await within(echo(request))).payload
    for writer in writers:
        writer.close()
    await within(doors.server.stop(None))


async def test_plain_http_has_no_root_path_and_the_clients_address() -> None:
    async def handle(call: HttpCall) -> None:
        head = call.head
        told = {
            "target": head.target.decode(),
            "root": head.root_path,
            "version": head.version,
            "client": head.client,
            "body": (await call.body()).decode(),
        }
        call.respond(200, [(b"content-type", b"application/json")], json.dumps(told).encode())

    server = Server(settings=ServerSettings(http=handle), options=(("pyserve.doors", 1),))
    doors = Doors(server)
    await server.start()
    for http2 in (False, True):
        async with doors.client(http2=http2) as client:
            answer = await client.post("/a%20b?c=d", content=b"hello")
            told = answer.json()
            assert ("/a%20b?c=d", "", "hello") == (told["target"], told["root"], told["body"])
            assert "2" if http2 else "1.1" == told["version"]
            assert "127.0.0.1" == told["client"][0]
            # The methods of the service are served beside it.
            assert 200 == (await client.post(f"{_ECHO}/Echo", json={})).status_code
    await within(server.stop(None))


async def test_clients_of_a_replicas_door_are_strangers() -> None:
    settings = ServerSettings(replica_id="replica-1", token=b"secret")
    doors = Doors(Server(settings=settings, options=(("pyserve.doors", 1),)))
    await doors.server.start()
    of_the_mesh = ["pyserve-http", "pyserve-framing", "pyserve-bypass", "pyserve-refused"]
    claims = dict.fromkeys(of_the_mesh, "1") | {"x-mine": "1"}
    for http2 in (False, True):
        async with doors.client(http2=http2) as client:
            request = {"payload": base64.b64encode(b"rights").decode()}
            answer = await client.post(f"{_ECHO}/Echo", json=request, headers=claims)
            told = json.loads(base64.b64decode(answer.json()["payload"]))
            assert (False, False) == (told["trusted"], told["framed"])
            assert "x-mine" in told["metadata"]
            assert not set(of_the_mesh) & set(told["metadata"])
            # A stranger's plain HTTP stays what it is, whatever it claims.
            assert 404 == (await client.get("/other", headers=claims)).status_code
    await within(doors.server.stop(None))


async def test_tls_offers_both_versions(tmp_path: Path) -> None:
    authority = Authority()
    leaf = authority.issue("localhost")
    server = pyserve.aio.server()
    echo_pb2_grpc.add_EchoServicer_to_server(Echo(), server)
    credentials = pyserve.aio.ssl_server_credentials([(leaf.key, leaf.chain)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    roots = tmp_path / "roots.pem"
    roots.write_bytes(authority.certificate)
    context = ssl.create_default_context(cafile=roots)
    for http2 in (False, True):
        async with httpx.AsyncClient(verify=context, http2=http2, timeout=PATIENCE_S) as client:
            answer = await client.post(f"https://localhost:{port}{_ECHO}/Echo", json={})
            assert (200, "HTTP/2" if http2 else "HTTP/1.1") == (
                answer.status_code,
                answer.http_version,
            )
    await within(server.stop(None))


@pytest.fixture(params=["connect", "grpc", "grpcweb"])
def protocol(request: pytest.FixtureRequest) -> str:
    """A protocol that ``buf curl`` speaks."""
    name: str = request.param
    return name


async def test_buf_curl_gets_an_answer(doors: Doors, protocol: str) -> None:
    # Relative, since buf takes a comma in it for the end of one of several.
    arguments = ["--protocol", protocol, "--schema", "services/echo/echo.proto"]
    if protocol == "grpc":
        arguments.append("--http2-prior-knowledge")
    process = await asyncio.create_subprocess_exec(
        *(_BUF, "curl", *arguments, "--data", '{"payload": "aGVsbG8="}'),
        f"http://{doors.address}{_ECHO}/Echo",
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 3 * PATIENCE_S)
    assert 0 == process.returncode, errors.decode()
    assert {"payload": "aGVsbG8="} == json.loads(output)
