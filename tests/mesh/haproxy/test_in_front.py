"""The real HAProxy in front of a mesh, by the configuration that pyserve writes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest
import websockets.sync.client
from grpc_health.v1 import health_pb2, health_pb2_grpc

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import foreground, status_of
from tests.mesh.haproxy.conftest import VARIABLES, Outer, outer
from tests.mesh.ingress import apps
from tests.support.authority import Authority, Files
from tests.support.mesh import RunningMesh
from tests.support.waiting import eventually, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.external]
_TIMEOUT_S = 20.0
_CALLERS = 2
_PAUSE_S = 0.004


@pytest.fixture
def client(proxy: Outer) -> Iterator[httpx.Client]:
    """Open a client of HAProxy, with an address that nobody trusts."""
    transport = httpx.HTTPTransport(local_address="127.0.0.3")
    with httpx.Client(
        base_url=f"http://{proxy.address}", timeout=_TIMEOUT_S, transport=transport
    ) as opened:
        yield opened


def deploy(replicas: int) -> None:
    """Roll over to that many new replicas."""
    pyserve.run(
        apps.Quick.options(num_replicas=replicas).bind(), name="quick", route_prefix="/quick"
    )


def running(name: str = "quick", deployment: str = "Quick") -> dict[str, int]:
    """Return the replicas that serve, with their processes."""
    deployments = pyserve.status().applications[name].deployments
    replicas = deployments[deployment].replicas
    return {each.replica_id: each.pid for each in replicas if each.state == "RUNNING"}


@pytest.fixture
def quick(proxy: Outer) -> Iterator[None]:
    """Run two replicas that HAProxy knows."""
    deploy(2)
    for replica_id in running():
        proxy.wait_for(replica_id)
    yield
    pyserve.delete("quick")


def calls_of_the_ingress() -> int:
    """Return how many calls the native ingress has had; health checks are none of a replica."""
    return pyserve.status().ingress.counts["forwarded"]


@pytest.mark.parity("S-60")
@pytest.mark.usefixtures("quick")
def test_calls_of_all_kinds_go_past_the_ingress(proxy: Outer, client: httpx.Client) -> None:
    before = calls_of_the_ingress()

    answer = client.get("/api/items/3")
    assert {"item": 3, "prefix": "/api", "client": "127.0.0.3", "scheme": "http"} == answer.json()
    with grpc.insecure_channel(proxy.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        reply = stub.Echo(echo_pb2.EchoRequest(payload=b"direct"), timeout=_TIMEOUT_S)
    assert b"direct" == reply.payload
    service = echo_pb2.DESCRIPTOR.services_by_name["Echo"].full_name
    transcoded = client.post(f"/{service}/Echo", json={"payload": "aGV5"})
    assert {"payload": "aGV5"} == transcoded.json()
    with websockets.sync.client.connect(
        f"ws://{proxy.address}/api/shout", open_timeout=_TIMEOUT_S
    ) as socket:
        socket.send("hey")
        assert "HEY" == socket.recv(_TIMEOUT_S)

    assert before == calls_of_the_ingress()


def test_what_leads_nowhere_is_the_ingress_s(proxy: Outer, client: httpx.Client) -> None:
    assert 404 == client.get("/nothing/there").status_code
    assert "success" == client.get("/-/healthz").text
    with grpc.insecure_channel(proxy.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        reply = health.Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
    assert health_pb2.HealthCheckResponse.SERVING == reply.status


def test_clients_do_not_say_who_they_are(client: httpx.Client) -> None:
    claims = {
        "x-forwarded-for": "192.0.2.1",
        "x-forwarded-proto": "https",
        "forwarded": "for=192.0.2.1;proto=https",
    }
    seen = client.get("/api/items/3", headers=claims).json()
    assert ("127.0.0.3", "http") == (seen["client"], seen["scheme"])


def test_calls_wait_for_a_place_as_many_as_may(proxy: Outer, client: httpx.Client) -> None:
    pyserve.run(apps.Narrow.bind(), name="narrow", route_prefix="/narrow")
    try:
        (replica_id,) = running("narrow", "Narrow")
        proxy.wait_for(replica_id)
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(client.post, "/narrow", content="3") for _ in range(4)]
            found = Counter(each.result(_TIMEOUT_S).status_code for each in asked)
    finally:
        pyserve.delete("narrow")
    # One in the replica, one that waits; the others are told so, as the deployment says.
    assert {200: 2, 429: 2} == found


def test_the_time_limit_of_a_deployment_holds(proxy: Outer, client: httpx.Client) -> None:
    pyserve.run(apps.Hasty.bind(), name="hasty", route_prefix="/hasty")
    try:
        (replica_id,) = running("hasty", "Hasty")
        proxy.wait_for(replica_id)
        assert 408 == client.post("/hasty", content="4").status_code
        longer = {"x-request-timeout-seconds": "20"}
        assert 200 == client.post("/hasty", content="2", headers=longer).status_code
    finally:
        pyserve.delete("hasty")


def _get_again(client: httpx.Client, path: str) -> int:
    """Get a page, once more if the connection ended first.

    So HAProxy says that a connection that it used again was closed meanwhile (RFC 9112, 9.3.1).
    """
    try:
        return client.get(path).status_code
    except httpx.RemoteProtocolError:
        return client.get(path).status_code


@pytest.mark.usefixtures("quick")
def test_a_replica_that_was_killed_loses_no_call_that_comes_later(
    proxy: Outer, client: httpx.Client
) -> None:
    killed, pid = next(iter(running().items()))
    # Connections to both of them are there.
    assert {200} == {client.get("/quick").status_code for _ in range(8)}
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}/task").exists() or _is_zombie(pid), _TIMEOUT_S)
    with grpc.insecure_channel(proxy.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        for _ in range(8):
            assert 200 == _get_again(client, "/quick")
            stub.Echo(echo_pb2.EchoRequest(), timeout=_TIMEOUT_S)
    wait_until(lambda: not proxy.names(killed), _TIMEOUT_S)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parity("S-60")
async def test_no_call_fails_while_replicas_come_and_drain(mesh: RunningMesh, proxy: Outer) -> None:
    await asyncio.to_thread(deploy, 1)
    for replica_id in await asyncio.to_thread(running):
        await asyncio.to_thread(proxy.wait_for, replica_id)
    seen: Counter[object] = Counter()
    stop = asyncio.Event()

    async def load(call: Callable[[], Awaitable[object]]) -> None:
        while not stop.is_set():
            seen[await call()] += 1
            await asyncio.sleep(_PAUSE_S)

    async with (
        httpx.AsyncClient(base_url=f"http://{proxy.address}", timeout=_TIMEOUT_S) as client,
        grpc.aio.insecure_channel(proxy.address) as channel,
    ):
        stub = echo_pb2_grpc.EchoStub(channel)

        async def over_http() -> object:
            answer = await client.get("/quick")
            return "http", answer.status_code, answer.text

        async def over_grpc() -> object:
            try:
                await stub.Echo(echo_pb2.EchoRequest(), timeout=_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                return "grpc", error.code(), error.details()
            return "grpc", "OK"

        async with asyncio.TaskGroup() as callers:
            for call in (over_http, over_grpc):
                for _ in range(_CALLERS):
                    callers.create_task(load(call))
            try:
                await _churn(seen)
            finally:
                stop.set()
    await asyncio.to_thread(pyserve.delete, "quick")
    assert {200, "OK"} == {each[1] for each in seen if isinstance(each, tuple)}, seen


async def _churn(seen: Counter[object]) -> None:
    """Replace one replica by two, see both get calls, then end one of these from outside."""
    await asyncio.to_thread(deploy, 2)
    pids = await asyncio.to_thread(running)
    for pid in pids.values():
        await eventually(partial(seen.__getitem__, ("http", 200, str(pid))), _TIMEOUT_S)
    ended, pid = next(iter(pids.items()))
    os.kill(pid, signal.SIGTERM)

    async def is_replaced() -> bool:
        found = await asyncio.to_thread(running)
        return ended not in found and len(found) == 2

    await eventually(is_replaced, _TIMEOUT_S)
    (new,) = set((await asyncio.to_thread(running)).values()) - set(pids.values())
    await eventually(lambda: seen["http", 200, str(new)], _TIMEOUT_S, "the new one gets calls")


def test_replicas_and_ingress_may_have_certificates(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    root = Authority()
    leaf = root.issue("127.0.0.1", "mesh.test")
    files, pem = Files(tmp_path / "tls"), tmp_path / "haproxy.pem"
    files.write(leaf, root)
    pem.write_bytes(leaf.chain + leaf.key)
    environment = {
        **mesh_environment,
        **VARIABLES,
        "PYSERVE_INGRESS_DRAIN_S": "0",
        **files.environment("PYSERVE_TLS"),
        **files.environment("PYSERVE_MESH_TLS"),
    }
    options = ["--server-ca", str(files.ca_file), "--server-pem", str(pem)]
    options += ["--server-name", "mesh.test"]
    with (
        foreground(environment, "tests.mesh.haproxy.apps:api") as running_mesh,
        outer(environment, tmp_path, *options) as proxy,
    ):
        base = f"http://{proxy.address}"
        assert "success" == httpx.get(f"{base}/-/healthz", timeout=_TIMEOUT_S).text
        answer = httpx.get(f"{base}/items/1", timeout=_TIMEOUT_S)
        assert 1 == answer.json()["item"]
        with websockets.sync.client.connect(
            f"ws://{proxy.address}/shout", open_timeout=_TIMEOUT_S
        ) as socket:
            socket.send("hey")
            assert "HEY" == socket.recv(_TIMEOUT_S)
        assert 0 == status_of(environment)["ingress"]["counts"]["forwarded"], "it went past it"
        running_mesh.process.send_signal(signal.SIGTERM)
        assert 0 == running_mesh.process.wait(_TIMEOUT_S)


def test_the_next_mesh_is_followed(mesh_environment: dict[str, str], tmp_path: Path) -> None:
    environment = {**mesh_environment, **VARIABLES, "PYSERVE_INGRESS_DRAIN_S": "0"}

    def asked(address: str) -> int:
        return httpx.get(f"http://{address}/items/1", timeout=_TIMEOUT_S).status_code

    with (
        foreground(environment, "tests.mesh.haproxy.apps:api") as first,
        outer(environment, tmp_path) as proxy,
    ):
        assert 200 == asked(proxy.address)
        first.process.send_signal(signal.SIGTERM)
        assert 0 == first.process.wait(_TIMEOUT_S)
        assert 503 == asked(proxy.address), "nobody is there"
        with foreground(environment, "tests.mesh.haproxy.apps:api", log_name="b.log") as second:
            wait_until(lambda: 200 == asked(proxy.address), _TIMEOUT_S)
            second.process.send_signal(signal.SIGTERM)
            assert 0 == second.process.wait(_TIMEOUT_S)
