"""Forks where it is told to, and lets the child end as it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
from starlette.requests import Request

import pyserve
from pyserve.bridge import endpoint_of
from services.echo import echo_pb2, echo_pb2_grpc

# Of a child that does not end by itself: the call that waits for it says so instead of hanging.
_CHILD_TIMEOUT_S = 15.0
EXIT_CODE = 7


def fork(end: str) -> int | None:
    """Fork; return the child's process id, or in the child ``None`` unless it ends here."""
    pid = os.fork()
    if pid:
        return pid
    # It holds the loop long enough for others to have something to do.
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline:
        pass
    match end:
        case "_exit":
            os._exit(EXIT_CODE)
        case "exit":
            sys.exit(EXIT_CODE)
        case "raise":
            raise ValueError("raised in the child")
        case "pause":
            signal.alarm(int(_CHILD_TIMEOUT_S))
            signal.pause()
        case "exec":
            os.execv(sys.executable, [sys.executable, "-c", f"raise SystemExit({EXIT_CODE})"])
    return None


def fork_when_full(end: str) -> int | None:
    """Fork where the process has as many descriptors open as it may."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = []
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.open(os.devnull, os.O_RDONLY))
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers) + 1, limits[1]))
        return fork(end)
    finally:
        for filler in fillers:
            os.close(filler)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def exit_code_of(pid: int) -> int:
    """Return how a child has ended."""
    deadline = time.monotonic() + _CHILD_TIMEOUT_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise TimeoutError(f"the child {pid} has not ended")


@pyserve.deployment
class Forking(echo_pb2_grpc.EchoServicer):
    """Payloads are instructions; answers are the process id of the child, or what was asked for.

    Args:
        notes: A file that gets the process id of each process in which the loop turns.
        end: How a child of the constructor ends; empty: it makes none.
    """

    def __init__(self, notes: str = "", end: str = "") -> None:
        self._notes = Path(notes) if notes else None
        self._child = fork(end) if end else 0
        self._tasks: list[asyncio.Task[None]] = []

    async def warmup(self) -> None:
        if self._notes is not None:
            self._tasks = [asyncio.create_task(self._note_turns()) for _ in range(3)]
            self._note_by_timer(asyncio.get_running_loop())

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        instruction, _, rest = request.payload.decode().partition(" ")
        match instruction:
            case "pid":
                return _reply(os.getpid())
            case "constructor":
                return _reply(self._child or 0)
            case "fork":
                never = asyncio.get_running_loop().create_future()
                child = fork(rest)
                if rest == "await" and child is None:
                    await never
                return _reply(child)
            case "fork-when-full":
                return _reply(fork_when_full(rest))
            case "multiprocessing":
                # From a thread of a pool, CPython 3.11 gives such a child the code 1 by itself.
                return _reply(_of_multiprocessing())
            case "thread":
                return _reply(await _forked_in_thread(rest))
            case "lose":
                return _reply(_lose_wake_ups())
            case "hold":
                threading.Event().wait(float(rest) if rest else None)
                return _reply("held")
        return echo_pb2.EchoReply(payload=request.payload)

    def EchoSync(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        instruction, _, rest = request.payload.decode().partition(" ")
        match instruction:
            case "fork":
                return _reply(fork(rest))
            case "wait":
                return _reply(exit_code_of(int(rest)))
            case "subprocess":
                done = subprocess.run(
                    [sys.executable, "-c", "import sys; sys.exit(7)"],
                    preexec_fn=os.getpid if rest else None,  # forks, then
                    check=False,
                )
                return _reply(done.returncode)
            case "spawn":
                code = f"raise SystemExit({EXIT_CODE})"
                arguments = [sys.executable, "-c", code]
                return _reply(exit_code_of(os.posix_spawn(sys.executable, arguments, os.environ)))
        return echo_pb2.EchoReply(payload=request.payload)

    async def __call__(self, request: Request) -> str:
        end = request.query_params["end"]
        if request.query_params["door"] == "batch":
            return await self.batched(end)
        if request.query_params["door"] == "anyio":
            return str(await anyio.to_thread.run_sync(fork, end))
        return str(fork(end))

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def batched(self, ends: list[str]) -> list[str]:
        return [str(fork(end)) for end in ends]

    async def _note_turns(self) -> None:
        while True:
            self._note()
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)

    def _note_by_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._note()
        loop.call_later(0.01, self._note_by_timer, loop)

    def _note(self) -> None:
        assert self._notes is not None
        with self._notes.open("a") as file:
            file.write(f"{os.getpid()}\n")


def _reply(value: object) -> echo_pb2.EchoReply:
    return echo_pb2.EchoReply(payload=str(value).encode())


async def _forked_in_thread(end: str) -> int | None:
    """Fork in a thread that is nobody's but ours."""
    loop = asyncio.get_running_loop()
    child: asyncio.Future[int | None] = loop.create_future()

    def run() -> None:
        if (pid := fork(end)) is not None:
            loop.call_soon_threadsafe(child.set_result, pid)

    threading.Thread(target=run).start()
    return await child


def _of_multiprocessing() -> int | None:
    process = multiprocessing.get_context("fork").Process(target=_work)
    process.start()
    process.join(_CHILD_TIMEOUT_S)
    return process.exitcode


def _work() -> None:
    """What a data loader does: threads, a loop and an exit code of its own."""

    async def main() -> None:
        await asyncio.sleep(0.01)

    asyncio.run(main())
    worker = threading.Thread(target=os.getpid)
    worker.start()
    worker.join()
    sys.exit(EXIT_CODE)


def _lose_wake_ups() -> str:
    """Let the loop sleep through what comes, as where another process takes its wake-ups."""
    endpoint = endpoint_of(asyncio.get_running_loop())
    assert endpoint is not None
    os.dup2(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), endpoint.raw.fileno())
    return "lost"


def made(options: dict[str, object]) -> pyserve.Application:
    """Return the application with options of the command line."""
    arguments = {name: options[name] for name in ("notes", "end") if name in options}
    seconds = {
        "health_check_period_s": float(str(options.get("period_s", 10))),
        "health_check_timeout_s": float(str(options.get("timeout_s", 30))),
        "graceful_shutdown_timeout_s": 1.0,
    }
    application: pyserve.Application = Forking.options(**seconds).bind(**arguments)
    return application
