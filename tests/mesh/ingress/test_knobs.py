"""Limits of connections and times of the ingress, set by the variables of Ray Serve's HAProxy."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.mesh.start.processes import status_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 30.0
_CONNECTIONS_MAX = 3
_HEALTHZ = b"GET /-/healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def knobs() -> Iterator[RunningMesh]:
    """Run a mesh with tight limits."""
    with running_mesh(
        "tests.mesh.ingress.apps:web",
        environment={
            "RAY_SERVE_HAPROXY_MAXCONN": str(_CONNECTIONS_MAX),
            "RAY_SERVE_HAPROXY_NBTHREAD": "2",
            "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": "0.5",
            "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": "3",
            "RAY_SERVE_HAPROXY_TIMEOUT_CONNECT_S": "3",
            "PYSERVE_INGRESS_ROOT_PATH": "/gateway",
        },
    ) as running:
        yield running


def connect(mesh: RunningMesh) -> socket.socket:
    """Open a connection that has said nothing yet."""
    host, _, port = mesh.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)


@pytest.mark.parity("S-65")
def test_connection_on_which_nothing_happens_is_closed(knobs: RunningMesh) -> None:
    with connect(knobs) as quiet:
        quiet.sendall(_HEALTHZ)
        assert quiet.recv(4096).startswith(b"HTTP/1.1 200")
        assert b"" == quiet.recv(4096), "closed after half a second"


@pytest.mark.parity("S-63")
def test_connection_beyond_the_limit_is_closed_and_there_is_room_again(
    knobs: RunningMesh,
) -> None:
    # Those that are held go after half a second, which a busy machine may take for this.
    wait_until(lambda: not all(_answers(knobs, _CONNECTIONS_MAX + 1)))
    wait_until(lambda: all(_answers(knobs, _CONNECTIONS_MAX)))


def test_status_tells_what_the_ingress_has_counted(knobs: RunningMesh) -> None:
    def counts() -> dict[str, int]:
        found: dict[str, int] = status_of({"PYSERVE_HOME": str(knobs.home)})["ingress"]["counts"]
        return found

    before = counts()
    wait_until(lambda: not all(_answers(knobs, _CONNECTIONS_MAX + 1)))
    # Those of the line before may still be there, and there is room for few.
    wait_until(lambda: 0 == counts()["connections"], what="there is room")
    answer = httpx.get(f"http://{knobs.address}/nothing/there", timeout=_TIMEOUT_S)
    after = counts()
    assert before["connections_refused"] < after["connections_refused"]
    assert before["calls"] < after["calls"]
    assert f"http_{answer.status_code // 100}xx" in after
    wait_until(lambda: 0 == counts()["connections"], what="only open connections count")
    assert 0 == counts()["in_flight"]


def _answers(mesh: RunningMesh, connections: int) -> list[bool]:
    """Open connections one by one, and say which of them were answered."""
    with contextlib.ExitStack() as held:
        return [_asks(held.enter_context(connect(mesh))) for _ in range(connections)]


def _asks(connection: socket.socket) -> bool:
    try:
        connection.sendall(_HEALTHZ)
        return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except (ConnectionResetError, BrokenPipeError):
        return False


@pytest.mark.parity("S-66")
def test_replica_that_sends_nothing_for_too_long_fails_the_request(knobs: RunningMesh) -> None:
    def get(wait_s: float) -> httpx.Response:
        url = f"http://{knobs.address}/"
        return httpx.get(url, params={"wait_s": wait_s}, timeout=_TIMEOUT_S)

    assert 503 == get(25).status_code
    assert 200 == get(0.1).status_code


@pytest.mark.parity("G-39")
def test_applications_see_what_was_removed_in_front(knobs: RunningMesh) -> None:
    seen = httpx.get(f"http://{knobs.address}/a", timeout=_TIMEOUT_S).json()

    assert ("/gateway", "/gateway/a") == (seen["root_path"], seen["path"])


@pytest.mark.parity("S-64")
def test_ingress_has_as_many_threads_as_it_was_given(knobs: RunningMesh) -> None:
    environment = {"PYSERVE_HOME": str(knobs.home)}
    (ingress,) = status_of(environment)["ingresses"]
    tasks = Path(f"/proc/{ingress['pid']}/task")
    names = [(each / "comm").read_text().strip() for each in tasks.iterdir()]

    assert 2 == sum(name.startswith("pyserve-in") for name in names), names


@pytest.mark.parity("S-73")
def test_each_old_name_is_warned_of_once_and_a_closed_ingress_of_nothing(
    knobs: RunningMesh,
) -> None:
    output = knobs.output()

    theirs, ours = "RAY_SERVE_HAPROXY_MAXCONN", "PYSERVE_INGRESS_MAX_CONNECTIONS"
    line = f"pyserve: warning: {theirs} is read as {ours}; write {ours}"
    assert [line] == [each for each in output.splitlines() if theirs in each]
    assert "whoever reaches it may call" not in output
