"""A WebSocket's client that is gone abruptly: what it has sent is not read to the end."""

from __future__ import annotations

import itertools
import select
import socket
import struct

import httpx
import pytest

import pyserve
from benchmarks.hostile.web_sockets import SENDERS
from tests.support.mesh import running_mesh
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

# A sender that finds no room for so long has filled every buffer on the way.
_FULL_S = 1.0
_MESSAGE_BYTES = 7
# The ingress notices when the replica gives it credit again, which it does for every 64 KiB: that
# is 9400 messages. With a piece of 256 KiB at the application, 75,000 were read.
_MESSAGES_MAX = 20_000


def _fill(address: str) -> int:
    """Send small messages until nothing takes more, and reset; return how many were sent."""
    host, _, port = address.rpartition(":")
    handshake, *_ = pieces = list(itertools.islice(SENDERS["tiny_messages"](), 2))
    sent = 0
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(handshake.replace(b"/sockets/socket", b"/socket"))
        assert client.recv(4096).startswith(b"HTTP/1.1 101 ")
        client.setblocking(False)
        while select.select([], [client], [], _FULL_S)[1]:
            sent += client.send(pieces[-1][sent % _MESSAGE_BYTES :])
        # Without waiting for unsent data, the kernel ends the connection with a reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return sent // _MESSAGE_BYTES


def test_small_messages_of_a_client_that_is_gone_are_dropped() -> None:
    with running_mesh("tests.mesh.asgi.abandoned:app") as mesh, attached(mesh.home):
        sent = _fill(mesh.address)
        with httpx.Client(base_url=f"http://{mesh.address}", timeout=60) as client:
            client.post("/release").raise_for_status()
            wait_until(lambda: pyserve.status().ingress.in_flight == 0, what="the call has ended")
            received = client.get("/messages").json()
    assert received <= _MESSAGES_MAX < sent, received
