"""Proxies that are trusted say who the client is; nobody else does."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from tests.mesh.commands import status_of
from tests.mesh.ingress.conftest import VARIABLES as DIRECT_PORTS
from tests.mesh.security.clients import tls_context
from tests.support.authority import Authority, Files
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_TIMEOUT_S = 20.0
_PROXY, _OTHER = "127.0.0.2", "127.0.0.3"
_CLIENT = bytes([192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80])
HEADER = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + _CLIENT
LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
FORWARDED = "x-forwarded-for: 203.0.113.9, 192.0.2.1\r\nx-forwarded-proto: https\r\n"
RULES = """
default: allow
rules:
  - name: nobody
    paths: [/secret]
    tokens: ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
"""


@pytest.fixture(scope="module")
def root() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def mesh(root: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """Run an application behind TLS, rules and a proxy that speaks the PROXY protocol."""
    folder = tmp_path_factory.mktemp("proxies")
    files = Files(folder / "tls")
    files.write(root.issue("127.0.0.1"), root)
    rules = folder / "access.yaml"
    rules.write_text(RULES)
    environment = {
        "PYSERVE_TLS_CERT_FILE": str(files.cert_file),
        "PYSERVE_TLS_KEY_FILE": str(files.key_file),
        "PYSERVE_ACCESS_FILE": str(rules),
        "PYSERVE_TRUSTED_PROXIES": _PROXY,
        "PYSERVE_PROXY_PROTOCOL": "v2",
    }
    with running_mesh("tests.mesh.security.apps:asker", environment=environment) as running:
        yield running


def _connect(address: str, source: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection(
        (host, int(port)), timeout=_TIMEOUT_S, source_address=(source, 0)
    )


def _ask(
    address: str,
    *,
    source: str = _PROXY,
    before: bytes = b"",
    root: Authority | None = None,
    path: str = "/",
    headers: str = "",
) -> str:
    """Return the first line and the body of an answer."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(_connect(address, source))
        client.sendall(before)
        if root is not None:
            tls = tls_context(None, root).wrap_socket(client, server_hostname="127.0.0.1")
            client = stack.enter_context(tls)
        head = f"GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}\r\n"
        client.sendall(head.encode())
        received = b""
        while piece := client.recv(4096):
            received += piece
    head, _, body = received.decode().partition("\r\n\r\n")
    return f"{head.splitlines()[0]} {body}"


def test_a_header_before_tls_names_the_client(mesh: RunningMesh, root: Authority) -> None:
    answer = _ask(mesh.address, before=HEADER, root=root, headers=FORWARDED)
    assert "HTTP/1.1 200 OK https 192.0.2.1 4660" == answer


def test_a_proxy_may_come_for_itself(mesh: RunningMesh, root: Authority) -> None:
    assert _ask(mesh.address, before=LOCAL, root=root).startswith(
        f"HTTP/1.1 200 OK https {_PROXY} "
    )


def test_a_proxy_without_a_header_is_closed(mesh: RunningMesh, root: Authority) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _ask(mesh.address, root=root)


def test_a_header_from_elsewhere_is_no_header(mesh: RunningMesh, root: Authority) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _ask(mesh.address, source=_OTHER, before=HEADER, root=root)
    answer = _ask(mesh.address, source=_OTHER, root=root, headers=FORWARDED)
    assert answer.startswith(f"HTTP/1.1 200 OK https {_OTHER} ")


def test_the_audit_has_the_client_and_not_the_proxy(mesh: RunningMesh, root: Authority) -> None:
    answer = _ask(mesh.address, before=HEADER, root=root, path="/secret")
    assert answer.startswith("HTTP/1.1 401 ")
    wait_until(lambda: "'ipv4:192.0.2.1:4660': UNAUTHENTICATED" in mesh.output(), _TIMEOUT_S)


def test_heads_name_the_client_for_proxies_and_at_ports_of_replicas_too() -> None:
    environment = DIRECT_PORTS | {"PYSERVE_TRUSTED_PROXIES": _PROXY}
    with running_mesh("tests.mesh.security.apps:asker", environment=environment) as mesh:
        (application,) = status_of({"PYSERVE_HOME": str(mesh.home)})["applications"].values()
        (deployment,) = application["deployments"].values()
        for address in [mesh.address, deployment["replicas"][0]["direct_http"]]:
            answer = _ask(address, headers=FORWARDED)
            assert "HTTP/1.1 200 OK https 192.0.2.1 0" == answer
            answer = _ask(address, source=_OTHER, headers=FORWARDED)
            assert answer.startswith(f"HTTP/1.1 200 OK http {_OTHER} ")


def test_ports_of_replicas_speak_the_proxy_protocol() -> None:
    variables = {"PYSERVE_TRUSTED_PROXIES": _PROXY, "PYSERVE_PROXY_PROTOCOL": "v2"}
    with running_mesh(
        "tests.mesh.security.apps:asker", environment=DIRECT_PORTS | variables
    ) as mesh:
        (application,) = status_of({"PYSERVE_HOME": str(mesh.home)})["applications"].values()
        (deployment,) = application["deployments"].values()
        answer = _ask(deployment["replicas"][0]["direct_http"], before=HEADER)
        assert "HTTP/1.1 200 OK http 192.0.2.1 4660" == answer
