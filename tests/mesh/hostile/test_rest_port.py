"""The REST port of a controller, and those who reach it without the mesh token."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from pyserve.control.discovery import read_record
from tests.mesh.start.processes import standing, status_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TIMEOUT_S = 20.0
PATH = "/api/serve/applications/"
CROWD = 300
# Those that it holds, and what a request and the status take meanwhile.
DESCRIPTORS_MAX = 64 + 16
NONSENSE = 100


class Rest:
    """A controller with a REST port.

    Attributes:
        place: Host and port.
        token: Of the mesh.
        process: The controller's.
        log: What it writes.
    """

    def __init__(self, place: tuple[str, int], token: str, pid: int, log: Path) -> None:
        self.place = place
        self.token = token
        self.process = psutil.Process(pid)
        self.log = log

    def get(self) -> int:
        """Ask what runs, as a member; return the status."""
        host, port = self.place
        headers = {"authorization": f"Bearer {self.token}"}
        url = f"http://{host}:{port}{PATH}"
        return httpx.get(url, headers=headers, timeout=TIMEOUT_S, trust_env=False).status_code


@pytest.fixture
def rest(mesh_environment: dict[str, str], tmp_path: Path) -> Iterator[Rest]:
    variables = {"PYSERVE_DASHBOARD_ADDRESS": "127.0.0.1:0", "PYSERVE_LOG_DIR": str(tmp_path)}
    with standing({**mesh_environment, **variables}):
        told = str(status_of(mesh_environment))
        found = re.search(r"REST is answered at 127\.0\.0\.1:(\d+)", told)
        assert found, told
        place = ("127.0.0.1", int(found[1]))
        record = read_record(Path(mesh_environment["PYSERVE_HOME"]))
        assert record is not None
        token = Path(record.token_file).read_text()
        yield Rest(place, token, record.pid, tmp_path / "controller.log")


def test_a_crowd_that_says_nothing_takes_few_descriptors(rest: Rest) -> None:
    """A member is served meanwhile."""
    before = rest.process.num_fds()
    with contextlib.ExitStack() as crowd:
        for _ in range(CROWD):
            crowd.enter_context(socket.create_connection(rest.place, timeout=TIMEOUT_S))
        assert 200 == rest.get()
        assert rest.process.num_fds() - before <= DESCRIPTORS_MAX


def test_what_is_no_request_is_one_line_of_the_log(rest: Rest) -> None:
    for _ in range(NONSENSE):
        with socket.create_connection(rest.place, timeout=TIMEOUT_S) as connection:
            connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            assert connection.recv(1024).startswith(b"HTTP/1.1 400 ")
    wait_until(lambda: "Invalid HTTP request" in rest.log.read_text(), TIMEOUT_S)
    assert 200 == rest.get()
    assert 1 == rest.log.read_text().count("Invalid HTTP request")
