"""Files reach their clients whole, in part, or visibly broken, and are closed again."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
from pathlib import Path

import httpx
import pytest

import pyserve
from tests.support.authority import Authority, Files
from tests.support.mesh import running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_MIB = 1 << 20
_PATHS = {"web": "/web/file", "plain": "/plain"}
BOTH = pytest.mark.parametrize("kind", ["web", "plain"])


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 MiB and a bit."""
    path = tmp_path_factory.mktemp("files") / "long.bin"
    path.write_bytes(os.urandom(30 * _MIB + 4321))
    return path


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A file of 1 GiB that takes no room on the disk."""
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    return path


def _digest(answer: httpx.Response) -> str:
    assert 200 == answer.status_code
    return hashlib.sha256(answer.content).hexdigest()


def _pid(kind: str) -> int:
    (deployment,) = pyserve.status().applications[kind].deployments.values()
    (replica,) = deployment.replicas
    return int(replica.pid)


def _open(kind: str, path: Path) -> int:
    """Return how often the replica has a file open."""
    found = 0
    for link in Path(f"/proc/{_pid(kind)}/fd").iterdir():
        try:
            found += link.readlink() == path
        except FileNotFoundError:  # Closed meanwhile.
            continue
    return found


def _rss_kib(pid: int) -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )
    return int(line.split()[1])


def _asked(base_url: str, kind: str, path: Path, *headers: str) -> socket.socket:
    """Ask for a file; return the connection, from which nothing was read."""
    host, _, port = base_url.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    lines = [f"GET {_PATHS[kind]}?path={path} HTTP/1.1", f"host: {host}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode())
    return connection


def _read(connection: socket.socket, count: int) -> int:
    """Read up to ``count`` bytes; return how many there were."""
    left = count
    while left and (piece := connection.recv(min(left, 1 << 16))):
        left -= len(piece)
    return count - left


def _skip_head(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    return head


@BOTH
@pytest.mark.parametrize("is_http2", [False, True], ids=["http1", "http2"])
def test_a_long_file_arrives_as_it_is(
    base_url: str, long_file: Path, kind: str, is_http2: bool
) -> None:
    wanted = hashlib.sha256(long_file.read_bytes()).hexdigest()
    with httpx.Client(http1=not is_http2, http2=is_http2, base_url=base_url, timeout=60) as client:
        assert wanted == _digest(client.get(_PATHS[kind], params={"path": str(long_file)}))
    assert 0 == _open(kind, long_file)


def test_a_long_file_arrives_as_it_is_over_tls(long_file: Path, tmp_path: Path) -> None:
    root = Authority()
    files = Files(tmp_path / "tls")
    files.write(root.issue("127.0.0.1"), root)
    wanted = hashlib.sha256(long_file.read_bytes()).hexdigest()
    trusted = ssl.create_default_context(cafile=files.ca_file)
    environment = {
        "PYSERVE_TLS_CERT_FILE": str(files.cert_file),
        "PYSERVE_TLS_KEY_FILE": str(files.key_file),
    }
    with running_mesh("tests.mesh.files.apps:web", environment=environment) as mesh:
        for is_http2 in (False, True):
            with httpx.Client(
                http1=not is_http2, http2=is_http2, verify=trusted, timeout=60
            ) as client:
                url = f"https://{mesh.address}/file"
                assert wanted == _digest(client.get(url, params={"path": str(long_file)}))


@BOTH
def test_a_client_that_leaves_closes_the_file(base_url: str, sparse: Path, kind: str) -> None:
    with _asked(base_url, kind, sparse) as connection:
        assert _MIB == _read(connection, _MIB)
        assert 1 == _open(kind, sparse)
    wait_until(lambda: _open(kind, sparse) == 0, what="the file is closed")


def test_a_file_is_closed_when_the_time_of_its_request_is_over(base_url: str, sparse: Path) -> None:
    with _asked(base_url, "plain", sparse, "x-request-timeout-seconds: 1") as connection:
        assert _MIB == _read(connection, _MIB)
        wait_until(lambda: _open("plain", sparse) == 0, what="the file is closed")


@BOTH
def test_a_slow_reader_of_a_long_file_takes_little_memory(
    base_url: str, sparse: Path, kind: str
) -> None:
    (ingress,) = pyserve.status().ingresses
    processes = (_pid(kind), int(ingress.pid))
    with _asked(base_url, kind, sparse) as connection:
        _read(connection, 16 * _MIB)
        before = [_rss_kib(pid) for pid in processes]
        _read(connection, 64 * _MIB)
        after = [_rss_kib(pid) for pid in processes]
    grown = [new - old for new, old in zip(after, before, strict=True)]
    assert max(grown) <= 4 * 1024, grown


@BOTH
def test_a_file_that_shrinks_breaks_the_answer_off(base_url: str, sparse: Path, kind: str) -> None:
    with _asked(base_url, kind, sparse) as connection:
        assert b"content-length: 1073741824\r\n" in _skip_head(connection)
        os.truncate(sparse, 2 * _MIB)
        assert 2 * _MIB <= _read(connection, 1 << 30) < 64 * _MIB
    wait_until(lambda: _open(kind, sparse) == 0, what="the file is closed")


@BOTH
def test_a_file_that_grows_is_sent_as_announced(base_url: str, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "growing.bin"
    path.write_bytes(bytes(32 * _MIB))
    with _asked(base_url, kind, path, "connection: close") as connection:
        assert b"content-length: 33554432\r\n" in _skip_head(connection)
        with path.open("ab") as file:
            file.write(b"more")
        assert 32 * _MIB == _read(connection, 64 * _MIB)


@BOTH
def test_ranges_heads_and_known_versions(base_url: str, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "digits.txt"
    path.write_bytes(b"0123456789")
    with httpx.Client(base_url=base_url, timeout=30) as client:

        def ask(method: str = "GET", **headers: str) -> httpx.Response:
            lines = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.request(method, _PATHS[kind], params={"path": str(path)}, headers=lines)

        whole = ask()
        assert (200, b"0123456789", "bytes") == (
            whole.status_code,
            whole.content,
            whole.headers["accept-ranges"],
        )
        part = ask(range="bytes=2-4", if_range=whole.headers["etag"])
        assert (206, b"234", "bytes 2-4/10") == (
            part.status_code,
            part.content,
            part.headers["content-range"],
        )
        head = ask("HEAD")
        assert (200, b"", "10") == (
            head.status_code,
            head.content,
            head.headers["content-length"],
        )
        beyond = ask(range="bytes=10-")
        assert (416, "bytes */10") == (beyond.status_code, beyond.headers["content-range"])


@pytest.mark.parametrize("name", ["missing.bin", ""], ids=["missing", "folder"])
def test_what_is_no_file_is_a_failure_that_names_no_path(
    base_url: str, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    for route in _PATHS.values():
        answer = httpx.get(base_url + route, params={"path": str(path)}, timeout=30)
        assert 500 == answer.status_code
        assert tmp_path.name not in answer.text + str(answer.headers)
