"""While an ingress is away its clients wait, at a socket that outlives it."""

from __future__ import annotations

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psutil
import pytest

from tests.mesh.commands import in_flight, pyserve
from tests.mesh.start.processes import (
    END_TIMEOUT_S,
    Command,
    address_of,
    application,
    pids,
    standing,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_REQUEST = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
_DEATHS = 4


def kill(pid: int) -> None:
    """Kill a process, and wait until it has none of its sockets any more."""
    process = psutil.Process(pid)
    process.kill()
    with suppress(psutil.NoSuchProcess):
        process.wait(END_TIMEOUT_S)


def ingress_of(mesh: Command, before: int) -> int:
    """Return the ingress that has come after another one, from the line that says so."""

    def newest() -> int:
        lines = [line for line in mesh.output().splitlines() if "the ingress runs again" in line]
        return int(lines[-1].rpartition("process ")[2].rstrip(")")) if lines else before

    wait_until(lambda: newest() != before, END_TIMEOUT_S)
    return newest()


@pytest.mark.parity("G-63")
def test_nobody_is_refused_however_often_an_ingress_dies(
    mesh_environment: dict[str, str],
) -> None:
    with standing(mesh_environment) as mesh, application(mesh_environment):
        host, _, port = address_of(mesh_environment).rpartition(":")
        ingress = pids(mesh_environment)[1]
        for _ in range(_DEATHS):
            kill(ingress)
            # Before the next one can be there: an interpreter takes longer to start.
            with socket.create_connection((host, int(port)), timeout=END_TIMEOUT_S) as client:
                client.sendall(_REQUEST)
                answer = b"".join(iter(lambda: client.recv(65_536), b""))
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            ingress = ingress_of(mesh, ingress)
        assert _DEATHS == mesh.output().count("a new one starts at once")
        assert 0 == mesh.end()


@pytest.mark.parametrize("ends", ["by a signal", "by another command"])
def test_nobody_waits_where_the_mesh_ends(mesh_environment: dict[str, str], ends: str) -> None:
    """Its calls are finished, and those who come meanwhile can go elsewhere at once."""
    with standing(mesh_environment) as mesh, application(mesh_environment):
        address = address_of(mesh_environment)
        with ThreadPoolExecutor(2) as threads:
            slow = threads.submit(
                httpx.get, f"http://{address}/", params={"wait_s": 6}, timeout=END_TIMEOUT_S
            )
            wait_until(lambda: 1 == in_flight(mesh_environment))
            if ends == "by a signal":
                mesh.process.send_signal(signal.SIGTERM)
            else:
                threads.submit(pyserve, "shutdown", environment=mesh_environment)
            wait_until(lambda: is_refused(address), END_TIMEOUT_S)
            assert not slow.done()
            assert 200 == slow.result(END_TIMEOUT_S).status_code
        assert 0 == mesh.process.wait(END_TIMEOUT_S)


def is_refused(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=END_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    return False
