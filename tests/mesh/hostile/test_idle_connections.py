"""Ten thousand clients that say nothing, or nothing more."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import pytest

from benchmarks.hostile.http2 import Kind, frames_in, greeting
from benchmarks.hostile.mesh import in_flight, ingress_process
from benchmarks.hostile.victim import Victim
from tests.support.waiting import wait_until

CONNECTIONS = 10_000
_SPARE_FILES = 500
_ASKS_EACH = 100
# Of all connections together.
GROWTH_BYTES_MAX = 64 << 20
PATIENCE_S = 30.0
GET = b"GET /plain HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.fixture
def room() -> Iterator[None]:
    """Let this process have as many sockets, and the mesh too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + _SPARE_FILES
    mesh = ingress_process()
    mesh_before = mesh.rlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, before[1])))
        mesh.rlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, mesh_before[1])))
    except (ValueError, PermissionError, OSError) as error:
        pytest.skip(f"{wanted} descriptors for a process cannot be had: {error}")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first_words",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(GET, id="HTTP/1.1"),
        pytest.param(greeting(), id="HTTP/2"),
    ],
)
@pytest.mark.usefixtures("room")
def test_ten_thousand_idle_connections_are_bounded_and_hurt_nobody(first_words, address):
    ingress = ingress_process()
    victim = Victim(address)
    victim.ask()
    rss_bytes = ingress.memory_info().rss
    connections: list[socket.socket] = []
    try:
        for index in range(CONNECTIONS):
            # As many addresses as there are ports for.
            source = (f"127.0.0.{2 + index % 8}", 0)
            connections.append(socket.create_connection(address, 20, source_address=source))
            connections[-1].sendall(first_words)
            if index % _ASKS_EACH == 0:
                # A client that asks now and then is not the longest idle, and stays connected.
                victim.ask()
        # After another crowd from these addresses this one waits in a line for some seconds, and
        # begins to rest later than a neighbour who says nothing meanwhile. Some of those who wait
        # longest go for others, since all together keep too much.
        answered = 0
        for index, connection in enumerate(connections if first_words else []):
            answered += _is_answered(connection)
            if index % _ASKS_EACH == 0:
                victim.ask()
        assert not first_words or answered > CONNECTIONS // 2

        def growth() -> int:
            victim.ask()
            return int(ingress.memory_info().rss - rss_bytes)

        # What those of HTTP/1.1 had is given back when they have been idle for some seconds, and
        # those that have rested longest were closed.
        wait_until(lambda: growth() <= GROWTH_BYTES_MAX, PATIENCE_S, "the memory is given back")
        growth_bytes = growth()
        assert in_flight() == 0
    finally:
        for connection in connections:
            connection.close()
        victim.close()
    print(f"{growth_bytes / CONNECTIONS:.0f} bytes for each connection")


def _is_answered(connection: socket.socket) -> bool:
    """Read until the mesh has said that it has read the first words, or has ended."""
    received = b""
    while not (received.startswith(b"HTTP/1.1 200") or _has_settings(received)):
        try:
            piece = connection.recv(4096)
        except ConnectionResetError:
            return False
        if not piece:
            return False
        received += piece
    return True


def _has_settings(received: bytes) -> bool:
    return any(kind == Kind.SETTINGS for kind, _, _, _ in frames_in(received))
