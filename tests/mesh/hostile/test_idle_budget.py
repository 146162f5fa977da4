"""Idle connections keep what they may; those that are closed for it lose no call."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial

import grpc
import httpx
import pytest

from benchmarks.hostile.http2 import ACK, Kind, frame, frames_in, greeting, request
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.ingress.conftest import VARIABLES as DIRECT_PORTS
from tests.mesh.start.processes import status_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_TIMEOUT_S = 20.0
# Of HTTP/2 there is room for some thirty.
_MEGABYTES = "1"
_MORE_THAN_MAY_REST = 60
_CALLS = 200
_PAUSE_S_MAX = 0.04
_EVERY_STREAM = 2**31 - 1


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    """Run the echo service behind an ingress with little memory for idle connections."""
    environment = DIRECT_PORTS | {
        "PYSERVE_IDLE_CONNECTION_MEMORY_MB": _MEGABYTES,
        "PYSERVE_INGRESS_IO_THREADS": "1",
    }
    with running_mesh("services.echo.service:app", environment=environment) as running:
        yield running


@pytest.fixture
def crowd(mesh: RunningMesh) -> Iterator[Crowd]:
    with contextlib.closing(Crowd(mesh.address)) as crowd:
        yield crowd


class Raw:
    """A connection of HTTP/2 that answers nothing by itself."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self.socket.sendall(greeting())
        self._received = b""
        self.next(Kind.SETTINGS)

    def next(self, kind: Kind) -> tuple[int, bytes]:
        """Read up to the next frame of a kind; return its stream and payload."""
        while True:
            for found, _, stream_id, payload in frames_in(self._received):
                self._received = self._received[9 + len(payload) :]
                if found == kind:
                    return stream_id, payload
            piece = self.socket.recv(4096)
            assert piece, f"the connection ended before a frame of kind {kind!r}"
            self._received += piece

    def has_heard(self) -> bool:
        """Whether more than the greeting has come."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._received += self.socket.recv(4096)
        self.socket.settimeout(_TIMEOUT_S)
        return any(kind == Kind.GOAWAY for kind, _, _, _ in frames_in(self._received))


class Crowd:
    """Clients that greet and say nothing more."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._members: list[Raw] = []

    def grow(self, count: int = 1) -> None:
        self._members += [Raw(self._address) for _ in range(count)]

    def oldest(self) -> Raw:
        return self._members[0]

    def close(self) -> None:
        for member in self._members:
            member.socket.close()
        self._members.clear()


def counts(mesh: RunningMesh) -> dict[str, int]:
    found: dict[str, int] = status_of({"PYSERVE_HOME": str(mesh.home)})["ingress"]["counts"]
    return found


def echo(channel: grpc.Channel) -> None:
    # A connection may have to go before it is ready, and the next one is there at once.
    reply = echo_pb2_grpc.EchoStub(channel).Echo(
        echo_pb2.EchoRequest(payload=b"still here"), timeout=_TIMEOUT_S, wait_for_ready=True
    )
    assert b"still here" == reply.payload


def test_a_request_that_crosses_the_goaway_is_answered(mesh: RunningMesh, crowd: Crowd) -> None:
    client = Raw(mesh.address)
    with client.socket:

        def is_told() -> bool:
            crowd.grow()
            return client.has_heard()

        wait_until(is_told, _TIMEOUT_S, "whoever has rested longest is told")
        _, goaway = client.next(Kind.GOAWAY)
        _, ping = client.next(Kind.PING)
        client.socket.sendall(request(1, "GET", "/-/healthz"))
        stream_id, _ = client.next(Kind.HEADERS)
        client.socket.sendall(frame(Kind.PING, ACK, 0, ping))
        _, last = client.next(Kind.GOAWAY)
        assert b"" == client.socket.recv(1)

    assert _EVERY_STREAM.to_bytes(4, "big") + bytes(4) == goaway[:8]
    assert 1 == stream_id
    assert (1).to_bytes(4, "big") + bytes(4) == last[:8]


def test_clients_that_stay_are_ended_and_the_rest_is_bounded(
    mesh: RunningMesh, crowd: Crowd
) -> None:
    before = counts(mesh)["idle_closed"]
    crowd.grow(3 * _MORE_THAN_MAY_REST)

    wait_until(
        lambda: counts(mesh)["connections"] <= _MORE_THAN_MAY_REST, what="only some may rest"
    )
    assert counts(mesh)["idle_closed"] - before >= 2 * _MORE_THAN_MAY_REST


@pytest.mark.parametrize("port", ["direct_grpc", "direct_http"])
def test_ports_of_replicas_have_the_same_bound(mesh: RunningMesh, port: str) -> None:
    (application,) = status_of({"PYSERVE_HOME": str(mesh.home)})["applications"].values()
    (deployment,) = application["deployments"].values()
    address = deployment["replicas"][0][port]
    with (
        grpc.insecure_channel(address) as channel,
        contextlib.closing(Crowd(address)) as crowd,
    ):
        echo(channel)
        crowd.grow(2 * _MORE_THAN_MAY_REST)
        crowd.oldest().next(Kind.GOAWAY)
        echo(channel)


def test_grpc_and_http_clients_that_were_pushed_out_lose_no_call(
    mesh: RunningMesh, crowd: Crowd
) -> None:
    with grpc.insecure_channel(mesh.address) as channel, httpx.Client(timeout=_TIMEOUT_S) as client:
        for _ in range(3):
            before = counts(mesh)
            echo(channel)
            assert 200 == client.get(f"http://{mesh.address}/-/healthz").status_code
            _await_rest(mesh, before["rests"])
            crowd.grow(_MORE_THAN_MAY_REST)
            closed = before["idle_closed"] + 2
            wait_until(partial(_has_closed, mesh, closed), what="two had to go")
        echo(channel)
        assert 200 == client.get(f"http://{mesh.address}/-/healthz").status_code


def _has_closed(mesh: RunningMesh, count: int) -> bool:
    return counts(mesh)["idle_closed"] >= count


def _await_rest(mesh: RunningMesh, rests: int) -> None:
    wait_until(lambda: counts(mesh)["rests"] > rests, what="the connection of HTTP/1.1 rests")


def test_calls_go_on_while_a_crowd_comes(mesh: RunningMesh) -> None:
    """Now and then a call begins just when its connection is told to go."""
    before = counts(mesh)["idle_closed"]
    is_over = threading.Event()
    failures: list[Exception] = []

    def come() -> None:
        try:
            while not is_over.is_set():
                with contextlib.closing(Crowd(mesh.address)) as crowd:
                    crowd.grow(_MORE_THAN_MAY_REST)
        except Exception as error:
            failures.append(error)

    coming = threading.Thread(target=come)
    coming.start()
    try:
        with grpc.insecure_channel(mesh.address) as channel:
            for _ in range(_CALLS):
                echo(channel)
                time.sleep(random.uniform(0, _PAUSE_S_MAX))
    finally:
        is_over.set()
        coming.join(_TIMEOUT_S)
    assert [] == failures
    assert _has_closed(mesh, before + 1)
