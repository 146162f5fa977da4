"""What clients of TLS send before they are known is memory that is counted."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import httpx
import pytest

from tests.mesh.ingress.conftest import VARIABLES as DIRECT_PORTS
from tests.mesh.security.clients import tls_context
from tests.mesh.start.processes import status_of
from tests.support.authority import Authority, Files
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_TIMEOUT_S = 20.0
_CROWD = 40
# Each of them keeps 64 KiB of its ClientHello, and there is room for 1 MiB, and a quarter for
# those that were told to go.
_MAY_STAY = 20


def _client_hello(length_bytes: int, sent_bytes: int) -> bytes:
    """Return the beginning of a ClientHello that says it has so many bytes."""
    message = b"\1" + length_bytes.to_bytes(3, "big") + bytes(sent_bytes)
    pieces = [message[at : at + 2**14] for at in range(0, len(message), 2**14)]
    return b"".join(b"\x16\3\1" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def _connections(mesh: RunningMesh) -> int:
    counts: dict[str, int] = status_of({"PYSERVE_HOME": str(mesh.home)})["ingress"]["counts"]
    return counts["connections"]


def test_a_crowd_of_unfinished_handshakes_is_bounded_by_what_it_has_sent(tmp_path: Path) -> None:
    root = Authority()
    files = Files(tmp_path / "tls")
    files.write(root.issue("127.0.0.1"), root)
    environment = DIRECT_PORTS | {
        "PYSERVE_TLS_CERT_FILE": str(files.cert_file),
        "PYSERVE_TLS_KEY_FILE": str(files.key_file),
        "PYSERVE_IDLE_CONNECTION_MEMORY_MB": "1",
        # None of them goes for that.
        "PYSERVE_INGRESS_HEADER_TIMEOUT_S": "120",
        "PYSERVE_INGRESS_IO_THREADS": "1",
    }
    with (
        running_mesh("services.echo.service:app", environment=environment) as mesh,
        contextlib.ExitStack() as crowd,
    ):
        host, _, port = mesh.address.rpartition(":")
        peers = [
            crowd.enter_context(socket.create_connection((host, int(port)), _TIMEOUT_S))
            for _ in range(_CROWD)
        ]
        wait_until(lambda: _connections(mesh) == _CROWD, what="all are small, and may wait")
        hello = _client_hello(60_000, 40_000)
        for peer in peers:
            # The first may have gone already.
            with contextlib.suppress(ConnectionError):
                peer.sendall(hello)
        wait_until(lambda: _connections(mesh) <= _MAY_STAY, what="most of them have no room")
        url = f"https://{mesh.address}/-/healthz"
        context = tls_context(None, root)
        assert 200 == httpx.get(url, verify=context, timeout=_TIMEOUT_S).status_code
