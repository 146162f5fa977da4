"""Options of ``start`` act in the ingress of the mesh that it starts: TLS among them."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT
from tests.support.authority import Authority, Files

pytestmark = pytest.mark.slow
_TIMEOUT_S = 30.0
# Files are named relative to the driver's folder; the process of the mesh may have another one.
_SCRIPT = """
import sys
import pyserve

pyserve.start(
    http_options={
        "port": 0,
        "keep_alive_timeout_s": 0.3,
        "ssl_certfile": "tls/..data/tls.crt",
        "ssl_keyfile": "tls/..data/tls.key",
        "ssl_ca_certs": "tls/..data/ca.crt",
    },
    grpc_options={"port": 0},
)
print(*pyserve.status().addresses, flush=True)
sys.stdin.read()
pyserve.shutdown()
"""


@dataclass(frozen=True)
class Guarded:
    """Where the ingress of the script listens, and what it takes to come in."""

    addresses: list[str]
    authority: Authority
    files: Files

    def connect(self, address: str, *, with_certificate: bool = True) -> ssl.SSLSocket:
        """Open a connection with TLS."""
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        if with_certificate:
            context.load_cert_chain(self.files.cert_file, self.files.key_file)
        host, _, port = address.rpartition(":")
        wire = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        return context.wrap_socket(wire, server_hostname=host)


@pytest.fixture
def guarded(mesh_environment: dict[str, str], tmp_path: Path) -> Iterator[Guarded]:
    """Run the script until the test ends."""
    authority, files = Authority(), Files(tmp_path / "tls")
    files.write(authority.issue("127.0.0.1"), authority)
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT],
        cwd=tmp_path,
        env={**mesh_environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None
        try:
            yield Guarded(script.stdout.readline().split(), authority, files)
            script.communicate(timeout=_TIMEOUT_S)
            assert 0 == script.returncode
        finally:
            script.kill()


@pytest.mark.parity("G-39")
def test_every_port_has_tls_asks_for_certificates_and_closes_what_waits(guarded: Guarded) -> None:
    assert 2 == len(guarded.addresses)
    for address in guarded.addresses:
        with guarded.connect(address) as connection:
            connection.sendall(b"GET /-/healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            # Nothing is deployed.
            assert connection.recv(4096).startswith(b"HTTP/1.1 503")
            assert b"" == connection.recv(4096), "closed when it had waited for 0.3 s"

        # In TLS 1.3 the refusal arrives with the first read after the handshake.
        with (
            pytest.raises((ssl.SSLError, ConnectionResetError)),
            guarded.connect(address, with_certificate=False) as stranger,
        ):
            stranger.recv(1)
