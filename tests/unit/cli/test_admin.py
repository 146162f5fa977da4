"""How commands ask an admin server that speaks TLS."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pyserve.admin.access import viewing_key
from pyserve.cli.admin import AdminClient, tls_context
from pyserve.cli.commands import CommandFailed
from pyserve.config.tls import TlsFiles
from tests.support.authority import Authority

_TOKEN = b"0" * 32


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_known = self.headers["authorization"] == f"Bearer {viewing_key(_TOKEN)}"
        body = b'{"fine": true}' if is_known else b'{"error": "no"}'
        self.send_response(200 if is_known else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    leaf = Authority().issue("127.0.0.1")
    found = TlsFiles(cert_file=tmp_path / "cert.pem", key_file=tmp_path / "key.pem")
    found.cert_file.write_bytes(leaf.chain)
    found.key_file.write_bytes(leaf.key)
    return found


@pytest.fixture
def address(files: TlsFiles) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert_file, files.key_file)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_is_known_by_the_files_of_the_ingress(address: str, files: TlsFiles):
    assert {"fine": True} == AdminClient(address, _TOKEN, tls_context(files)).read("/").data


def test_one_that_nobody_knows_is_not_asked(address: str):
    with pytest.raises(CommandFailed, match="certificate"):
        AdminClient(address, _TOKEN, tls_context(None)).read("/")


def test_another_mesh_refuses(address: str, files: TlsFiles):
    with pytest.raises(CommandFailed, match="no"):
        AdminClient(address, b"1" * 32, tls_context(files)).read("/")
