"""Questions to an ingress that is not well, or whose certificate or clock is not."""

from __future__ import annotations

import datetime
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pyserve.driver.doctor_mesh import Finding, State, ask_ingress, ask_port
from tests.support.authority import Authority


@contextmanager
def answering(
    status: int = 200, ahead_s: int = 0, certificate: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """Run a server that says how an ingress is; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def date_time_string(self, timestamp: float | None = None) -> str:
            del timestamp
            now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=ahead_s)
            return f"{now:%a, %d %b %Y %H:%M:%S} GMT"

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(address: str, *, speaks_tls: bool = False) -> dict[str, Finding]:
    return {each.subject: each for each in ask_ingress("ingress on a", address, speaks_tls)}


def test_one_that_is_healthy_is_fine() -> None:
    with answering() as address:
        found = asked(address)
    assert ["ingresses"] == list(found)
    assert State.OK is found["ingresses"].state


def test_one_that_says_no_or_is_gone_is_wrong() -> None:
    with answering(503) as address:
        assert "says 503" in asked(address)["ingresses"].text
        assert State.OK is next(ask_port("metrics", address)).state
    for found in (asked(address)["ingresses"], next(ask_port("metrics", address))):
        assert State.WRONG is found.state
        assert found.remedy


@pytest.mark.parametrize("ahead_s", [60, -60])
def test_a_clock_that_is_apart_is_wrong(ahead_s: int) -> None:
    with answering(ahead_s=ahead_s) as address:
        found = asked(address)["clocks"]
    assert State.WRONG is found.state
    # Whole seconds, and the question takes a moment.
    assert any(f" {ahead_s - late:+d} s " in found.text for late in range(3))


@pytest.mark.parametrize(("days", "state"), [(100, State.OK), (5, State.NOTICE), (0, State.WRONG)])
def test_the_certificate_that_is_shown_is_looked_at(
    tmp_path: Path, days: int, state: State
) -> None:
    lifetime = datetime.timedelta(days=days, minutes=-30)
    leaf = Authority().issue("127.0.0.1", lifetime=lifetime)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(leaf.chain)
    key.write_bytes(leaf.key)
    with answering(certificate=(cert, key)) as address:
        found = asked(address, speaks_tls=True)
    assert state is found["certificates"].state
    assert State.OK is found["ingresses"].state
