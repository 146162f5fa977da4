"""A request that is refused before its body has come: its client reads the answer all the same."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

import pyserve
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_TIMEOUT_S = 20.0
# More than the buffers of both ends hold.
_BODY_BYTES = 30_000_000
_BLOCK = b"x" * 65_536


@contextlib.contextmanager
def _post(mesh: RunningMesh, path: str) -> Iterator[socket.socket]:
    host, _, port = mesh.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as client:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {_BODY_BYTES}\r\n\r\n"
        client.sendall(head.encode())
        yield client


def _connections() -> int:
    return pyserve.status().ingress.counts["connections"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/-/nowhere", b"HTTP/1.1 404"),
        ("/-/healthz", b"HTTP/1.1 405"),
        ("//a:b@c/%zz\x01", b"HTTP/1.1 400"),
    ],
)
def test_who_sends_all_before_he_reads_gets_it(mesh: RunningMesh, path: str, status: bytes) -> None:
    with _post(mesh, path) as client:
        left = _BODY_BYTES
        while left:
            left -= client.send(_BLOCK[:left])
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith(status), answer[:100]
    assert 1 == answer.count(b"HTTP/1.1 ")


def test_a_client_that_falls_silent_is_not_waited_for(mesh: RunningMesh) -> None:
    before = _connections()
    with _post(mesh, "/-/nowhere") as client:
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 404")
        wait_until(lambda: _connections() <= before)
