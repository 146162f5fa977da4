"""The launcher's end of the process that is connected with a Ray cluster."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pyserve.launch.on_ray import messages as module
from pyserve.launch.on_ray.messages import Link

pytestmark = pytest.mark.slow


def descriptors() -> set[Path]:
    """Return what this process has open."""
    return set(Path("/proc/self/fd").iterdir())


@asynccontextmanager
async def hanging() -> AsyncIterator[tuple[Link, asyncio.subprocess.Process, socket.socket]]:
    """Have an agent that does not end when it is let go; also its end of the connection."""
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "input()"), stdin=asyncio.subprocess.PIPE
    )
    with theirs:
        theirs.setblocking(False)
        yield Link(process, *await asyncio.open_connection(sock=ours)), process, theirs


async def test_one_that_does_not_end_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENDED_WITHIN_S", 0.05)
    async with hanging() as (link, process, _):
        await link.close()

        assert -signal.SIGKILL == process.returncode


async def test_one_for_which_nobody_waits_any_more_is_killed() -> None:
    async with hanging() as (link, process, theirs):
        closing = asyncio.create_task(link.close())
        assert b"" == await asyncio.get_running_loop().sock_recv(theirs, 1), "it is let go"

        closing.cancel()

        with pytest.raises(asyncio.CancelledError):
            await closing
        assert -signal.SIGKILL == process.returncode
        await link.close()


async def test_a_connection_that_cannot_be_opened_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*, sock: socket.socket) -> None:
        raise OSError(f"no place for {sock.fileno()}")

    monkeypatch.setattr(module.asyncio, "open_connection", refused)
    before = descriptors()
    with pytest.raises(OSError, match="no place"):
        await Link.open("auto", "pyserve-x", tells_nodes=False)

    assert before == descriptors()
