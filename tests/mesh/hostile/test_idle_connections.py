"""Ten thousand clients that say nothing."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import pytest

from benchmarks.hostile.http2 import Kind, frames_in, greeting
from benchmarks.hostile.mesh import in_flight, ingress_process
from benchmarks.hostile.victim import Victim

CONNECTIONS = 10_000
_SPARE_FILES = 500
# Buffers that h2 (8 and 16 KiB) and hyper (twice 8 KiB) make for each connection and keep while it
# is idle; without huge pages half of it is never touched.
CONNECTION_BYTES_MAX = 40 * 1024


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
        pytest.param(b"GET /plain HTTP/1.1\r\nhost: h\r\n\r\n", id="HTTP/1.1"),
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
        for connection in connections:
            _await_answer(connection)
        growth_bytes = ingress.memory_info().rss - rss_bytes
        victim.ask()
        assert in_flight() == 0
    finally:
        for connection in connections:
            connection.close()
        victim.close()
    print(f"{growth_bytes / CONNECTIONS:.0f} bytes for each connection")
    assert growth_bytes / CONNECTIONS <= CONNECTION_BYTES_MAX


def _await_answer(connection: socket.socket) -> None:
    """Read until the mesh has said that it has read the first words."""
    received = b""
    while not (received.startswith(b"HTTP/1.1 200") or _has_settings(received)):
        piece = connection.recv(4096)
        assert piece, "an idle connection was closed"
        received += piece


def _has_settings(received: bytes) -> bool:
    return any(kind == Kind.SETTINGS for kind, _, _, _ in frames_in(received))
