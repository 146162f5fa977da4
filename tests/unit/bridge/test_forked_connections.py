"""A forked child holds no connection of its parent's channels, also where nothing is served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

_TIMEOUT_S = 20.0
# Dials the controller by a channel and another peer by itself, forks when it is told to, and ends.
# The child lives until its standard input ends.
PARENT = textwrap.dedent("""
    import asyncio, os, socket, sys
    from pyserve import aio

    async def dial(controller):
        channel = aio.insecure_channel(controller)
        channel.get_state(try_to_connect=True)
        await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 1)
        if os.fork() == 0:
            os.read(0, 1)
        os._exit(0)

    controller, other = sys.argv[1:]
    host, _, port = other.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    asyncio.run(dial(controller))
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


def test_the_controller_sees_the_death_of_a_process_whose_child_lives(
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
                os.write(ours, b"f")
                assert parent.wait(_TIMEOUT_S) == 0
                while joined.recv(4096):
                    pass
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
