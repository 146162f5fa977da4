"""The comparison of stepped models: its client of events, its peer and its ratios."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from benchmarks.stepping import __main__ as stepping
from benchmarks.stepping import peers
from benchmarks.stepping.events import Events
from tests.support.waiting import wait_until

_HEAD = b"HTTP/1.1 %d OK\r\ntransfer-encoding: chunked\r\n\r\n"

# A server with a worker, which does not end with it.
_PEER = """
import socket, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({pids!r}, "w").write(str(worker.pid))
with socket.create_server(("127.0.0.1", int(sys.argv[2]))) as server:
    time.sleep(600)
"""


@asynccontextmanager
async def serving(
    chunks: Callable[[bytes], list[bytes]], status: int = 200
) -> AsyncIterator[tuple[str, list[int]]]:
    """Answer each request with chunks; yield the address, and the requests of each connection."""
    counts: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        counts.append(0)
        number = len(counts) - 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            counts[number] += 1
            parts = [b"%x\r\n%s\r\n" % (len(each), each) for each in chunks(body)]
            for part in (_HEAD % status, *parts, b"0\r\n\r\n"):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)

    ended: list[asyncio.Event] = []

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.Event())
        mine = ended[-1]
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()  # The client has left.
        finally:
            mine.set()

    server = await asyncio.start_server(quietly, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}", counts
        await asyncio.gather(*(each.wait() for each in ended))


def cut(body: bytes) -> list[bytes]:
    """Return as many events as a request asks for, cut where it hurts."""
    return [b"data: 1\n", b"\ndata: 2\n", b"\n", b"data: 3\n\ndata: 4\n", b"\n"][: int(body) + 1]


async def test_events_are_counted_wherever_they_are_cut() -> None:
    async with serving(cut) as (address, counts), Events(address, "/") as client:
        await client.call(4)
        await client.call(4)
    assert counts == [2], "the connection is used again"


async def test_calls_at_once_have_connections_of_their_own() -> None:
    async with serving(cut) as (address, counts), Events(address, "/") as client:
        await asyncio.gather(*(client.call(4) for _ in range(3)))
    assert counts == [1, 1, 1]


@pytest.mark.parametrize(
    ("status", "steps", "text"),
    [(503, 4, "status 503, 4 events for 4 steps"), (200, 9, "status 200, 4 events for 9 steps")],
)
async def test_another_answer_is_an_error(status: int, steps: int, text: str) -> None:
    async with serving(cut, status) as (address, _), Events(address, "/") as client:
        with pytest.raises(RuntimeError, match=text):
            await client.call(steps)


async def test_a_connection_that_breaks_is_an_error_and_is_replaced() -> None:
    async with serving(cut) as (address, counts), Events(address, "/") as client:
        await client.call(4)
        (connection,) = client._idle
        connection.close()
        await connection.lost.wait()
        await client.call(4)
    assert counts == [1, 1]


@pytest.mark.slow
def test_a_peer_ends_with_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, pids = tmp_path / "environment", tmp_path / "pids"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    program = tmp_path / "peer.py"
    program.write_text(_PEER.format(pids=str(pids)))
    monkeypatch.setattr(peers, "_PROGRAM", program)
    with peers.litserve(environment) as address:
        assert address.startswith("127.0.0.1:")
        worker = int(pids.read_text())
        assert psutil.pid_exists(worker)
    wait_until(lambda: not _runs(worker), what="the worker has ended")


def test_a_peer_that_ends_at_once_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(peers, "_PROGRAM", tmp_path / "missing.py")
    with pytest.raises(RuntimeError, match="LitServe ended with 2"), peers.litserve(tmp_path):
        pytest.fail("it is not there")


def test_each_form_is_compared_with_one_that_answers_in_the_same_way() -> None:
    def outcome(form: str, per_s: float, p99_ms: float) -> stepping.Outcome:
        return stepping.Outcome(form, 10, 0.0, per_s, 1.0, p99_ms)

    found = [
        outcome("continuous", 100.0, 20.0),
        outcome("batched", 50.0, 40.0),
        outcome("events", 90.0, 30.0),
        outcome("litserve", 30.0, 60.0),
    ]
    assert stepping._ratios(found) == {
        "10 x, share 0.0, over batched": {"per_s": 2.0, "p99": 0.5},
        "10 x, share 0.0, over litserve": {"per_s": 3.0, "p99": 0.5},
    }


async def test_a_call_that_fails_ends_the_comparison() -> None:
    async def failing(_steps: int) -> None:
        raise RuntimeError("status 503")

    with pytest.raises(RuntimeError, match="status 503"):
        await stepping.open_loop(failing, "litserve", 1, 0.5, 0.05, seed=0)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
