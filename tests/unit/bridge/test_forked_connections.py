"""A forked child holds no connection of its parent's channels, also where nothing is served."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_TIMEOUT_S = 20.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"  # No settings of its own.
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

# Dials and forks at the same time, again and again; each child looks for connections to the peer.
STORM = textwrap.dedent("""
    import asyncio, os, socket, sys, time
    from pyserve import aio

    def connections_to(port):
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    with socket.socket(fileno=os.dup(int(name))) as found:
                        peer = found.getpeername()
                        yield isinstance(peer, tuple) and peer[1] == port
            except OSError:
                continue  # The folder's own descriptor, or a socket without a peer.

    async def storm(port):
        found = 0
        for number in range(200):
            async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                channel.get_state(try_to_connect=True)
                until = time.perf_counter() + number % 40 * 10e-6
                while time.perf_counter() < until:
                    pass
                if (child := os.fork()) == 0:
                    os._exit(sum(connections_to(port)))
                found += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return found

    sys.exit(min(asyncio.run(storm(int(sys.argv[1]))), 100))
""")

# Serves, says where, and forks while strangers come and go; each child looks for the server's
# sockets.
CROWD = textwrap.dedent("""
    import asyncio, os, socket, sys
    from pyserve import aio

    def sockets_of(port):
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    with socket.socket(fileno=os.dup(int(name))) as found:
                        own = found.getsockname()
                        yield isinstance(own, tuple) and own[1] == port
            except OSError:
                continue  # The folder's own descriptor.

    async def crowd():
        server = aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        found = 0
        for _ in range(500):
            if (child := os.fork()) == 0:
                os._exit(sum(sockets_of(port)))
            found += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return found

    sys.exit(min(asyncio.run(crowd()), 100))
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
                # Objects of the user are left as a fork has them.
                others.setblocking(False)
                with pytest.raises(BlockingIOError):
                    others.recv(1)
                os.close(ours)
                ours = -1
                others.settimeout(_TIMEOUT_S)
                assert others.recv(1) == b""
        finally:
            if ours >= 0:
                os.close(ours)
            parent.kill()
            parent.wait()


@pytest.mark.slow
def test_a_connection_that_is_made_during_a_fork_is_not_the_childs() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as peer:
        storm = [sys.executable, "-c", STORM, str(peer.getsockname()[1])]
        assert 0 == subprocess.run(storm, timeout=_TIMEOUT_S * 2, check=False).returncode


@pytest.mark.slow
def test_a_connection_that_comes_or_goes_during_a_fork_is_not_the_childs() -> None:
    crowd = subprocess.Popen([sys.executable, "-c", CROWD], stdout=subprocess.PIPE)
    assert crowd.stdout is not None
    try:
        port = int(crowd.stdout.readline())
        strangers = [threading.Thread(target=come_and_go, args=(port,)) for _ in range(4)]
        for stranger in strangers:
            stranger.start()
        assert crowd.wait(_TIMEOUT_S * 2) == 0
    finally:
        crowd.kill()
        crowd.wait()
        crowd.stdout.close()
    for stranger in strangers:
        stranger.join(_TIMEOUT_S)


def come_and_go(port: int) -> None:
    """Open connections over HTTP/2 one after the other, for as long as somebody listens."""
    at_once = struct.pack("ii", 1, 0)  # Without TIME_WAIT, which would use up the ports.
    with contextlib.suppress(ConnectionError):
        while True:
            with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as stranger:
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                stranger.sendall(_PREFACE)
                stranger.recv(1)
