"""Forks this process, as a data loader would, and reports what the child inherited."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import traceback
from pathlib import Path

import pyserve
from services.echo import echo_pb2

# The child ends itself after this time, so that a deadlock in it cannot hang the call for good.
_CHILD_TIMEOUT_S = 10
_TCP_LISTEN = "0A"  # the state column of /proc/net/tcp
_UNIX_ACCEPTING = 0x10000  # the flag column of /proc/net/unix


def fork_and_probe() -> echo_pb2.ForkReply:
    """Fork, let the child look at itself and use the runtime, and return what it found.

    Raises:
        RuntimeError: The child ended without a report.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_child(write_end)
    os.close(write_end)
    try:
        report = _read_all(read_end)
    finally:
        os.close(read_end)
        _, status = os.waitpid(pid, 0)
    if not report:
        ended = os.waitstatus_to_exitcode(status)
        raise RuntimeError(f"the forked child ended with {ended} and without a report")
    return echo_pb2.ForkReply.FromString(report)


def _run_child(write_end: int) -> None:
    # Nothing may unwind into the parent's stack, which the child has a copy of.
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_CHILD_TIMEOUT_S)
        reply = echo_pb2.ForkReply(listening=listening_sockets())
        try:
            asyncio.run(_use_runtime())
        except Exception as error:
            reply.runtime_error_type = type(error).__name__
            reply.runtime_error = str(error)
        os.write(write_end, reply.SerializeToString())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


async def _use_runtime() -> None:
    server = pyserve.aio.server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await server.stop(None)


def _read_all(descriptor: int) -> bytes:
    parts = []
    while select.select([descriptor], [], [], _CHILD_TIMEOUT_S + 5)[0]:
        part = os.read(descriptor, 65536)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def listening_sockets() -> list[str]:
    """Return what this process listens on, as ``tcp:<port>`` or ``unix:<path>``, sorted."""
    inodes = {_socket_inode(entry) for entry in Path("/proc/self/fd").iterdir()}
    return sorted(name for inode, name in _listeners().items() if inode in inodes)


def _socket_inode(entry: Path) -> str:
    try:
        target = str(entry.readlink())
    except FileNotFoundError:  # The descriptor of the listing itself.
        return ""
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:") else ""


def _listeners() -> dict[str, str]:
    found = {}
    for table in ("tcp", "tcp6"):
        for fields in _rows(table):
            if fields[3] == _TCP_LISTEN:
                port = int(fields[1].rpartition(":")[2], 16)
                found[fields[9]] = f"tcp:{port}"
    for fields in _rows("unix"):
        if int(fields[3], 16) & _UNIX_ACCEPTING:
            path = fields[7] if len(fields) > 7 else ""
            found[fields[6]] = f"unix:{path}"
    return found


def _rows(table: str) -> list[list[str]]:
    lines = Path("/proc/self/net", table).read_text(encoding="utf-8", errors="replace")
    return [line.split() for line in lines.splitlines()[1:]]
