"""A forked child holds nothing of its parent's place in the mesh."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyserve.replica.forking import _is_at

_TIMEOUT_S = 20.0
# Connects to the controller and to another peer, forks, and closes its own ends. The child lives
# until its standard input ends.
PARENT = textwrap.dedent("""
    import os, socket, sys
    from pyserve.replica.forking import separate_forks

    def connect(address):
        host, _, port = address.rpartition(":")
        if host == "unix":
            found = socket.socket(socket.AF_UNIX)
            found.connect(port)
            return found
        return socket.create_connection((host, int(port)))

    controller, other = sys.argv[1:]
    connections = connect(controller), connect(other)
    separate_forks(controller)
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
""")


@pytest.fixture(params=["unix", "tcp"])
def controller(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    if request.param == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "controller.sock"))
        listener.listen()
    else:
        listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        listener.settimeout(_TIMEOUT_S)
        yield listener


def name_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    return f"unix:{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}"


def test_the_controller_sees_the_death_of_a_replica_whose_child_lives(
    controller: socket.socket,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        child_reads, ours = os.pipe()
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, name_of(controller), name_of(other)],
            stdin=child_reads,
        )
        os.close(child_reads)
        try:
            joined, _ = controller.accept()
            others, _ = other.accept()
            with joined, others:
                joined.settimeout(_TIMEOUT_S)
                assert parent.wait(_TIMEOUT_S) == 0
                assert joined.recv(1) == b""
                # What is the user's own is left as a fork has it.
                others.setblocking(False)
                with pytest.raises(BlockingIOError):
                    others.recv(1)
                os.close(ours)
                others.settimeout(_TIMEOUT_S)
                assert others.recv(1) == b""
        finally:
            parent.kill()
            parent.wait()


@pytest.mark.parametrize(
    ("peer", "address", "expected"),
    [
        ("/run/c.sock", "unix:/run/c.sock", True),
        ("/run/d.sock", "unix:/run/c.sock", False),
        ("", "unix:/run/c.sock", False),
        (b"", "unix:/run/c.sock", False),
        (("10.0.0.1", 9000), "10.0.0.1:9000", True),
        (("10.0.0.1", 9001), "10.0.0.1:9000", False),
        (("10.0.0.2", 9000), "10.0.0.1:9000", False),
        (("fd00::1", 9000, 0, 0), "[fd00::1]:9000", True),
        (("10.0.0.2", 9000), "controller.mesh:9000", True),
        (("10.0.0.2", 9000), "unix:/run/c.sock", False),
    ],
)
def test_a_peer_is_known_by_its_address(peer: object, address: str, expected: bool) -> None:
    assert expected == _is_at(peer, address)
