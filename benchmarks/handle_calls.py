"""Handle → handle calls on both sides of ``benchmarks.handles``: who calls, and who is called.

The mesh's side are two deployments. The baseline's are two processes of grpc.aio on uvloop, with
the same pickled body, as one would write them by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pyserve

PATH = "/bench.Callee/Call"
CPU_PATH = "/bench.Callee/Cpu"


@pyserve.deployment(max_ongoing_requests=1_000)
class Callee:
    """Answers with what it is given."""

    async def __call__(self, value: int) -> int:
        return value

    async def cpu_s(self) -> float:
        return time.process_time()


@pyserve.deployment(max_ongoing_requests=10)
class Caller:
    """Calls, and measures."""

    def __init__(self, callee: pyserve.DeploymentHandle) -> None:
        self._callee = callee

    async def drive(self, calls: int, concurrency: int) -> dict[str, float]:
        callee = self._callee

        async def call(value: int) -> object:
            return await callee.remote(value)

        async def callee_cpu_s() -> float:
            return float(await callee.cpu_s.remote())

        return await drive(call, callee_cpu_s, calls, concurrency)


app = Caller.bind(Callee.bind())  # type: ignore[attr-defined]  # what decorators return


async def drive(
    call: Callable[[int], Awaitable[object]],
    callee_cpu_s: Callable[[], Awaitable[float]],
    calls: int,
    concurrency: int,
) -> dict[str, float]:
    """Make so many calls, so many at once; return seconds of wall and CPU, and wrong answers."""
    wrong = 0

    async def one(number: int) -> None:
        nonlocal wrong
        for value in range(number, calls, concurrency):
            if await call(value) != value:
                wrong += 1

    callee_before_s = await callee_cpu_s()
    cpu_before_s, before_s = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(concurrency)))
    wall_s, caller_s = time.perf_counter() - before_s, time.process_time() - cpu_before_s
    callee_s = await callee_cpu_s() - callee_before_s
    return {"wall_s": wall_s, "caller_s": caller_s, "callee_s": callee_s, "wrong": float(wrong)}


# --- the baseline -----------------------------------------------------------------------------


async def _serve() -> None:
    import grpc

    async def call(request: Any, _context: object) -> Any:
        args, kwargs = request
        return await _echo(*args, **kwargs)

    async def cpu_s(_request: Any, _context: object) -> float:
        return time.process_time()

    async def _echo(value: int) -> int:
        return value

    def handler(function: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(function, pickle.loads, _dumps)

    server = grpc.aio.server()
    handlers = {"Call": handler(call), "Cpu": handler(cpu_s)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench.Callee", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"port": port}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(1.0)


async def _call(port: int) -> None:
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = channel.unary_unary(PATH, _dumps, pickle.loads)
        cpu: Any = channel.unary_unary(CPU_PATH, _dumps, pickle.loads)

        async def call(value: int) -> object:
            return await stub([(value,), {}])

        async def callee_cpu_s() -> float:
            return float(await cpu(None))

        while line := await asyncio.to_thread(sys.stdin.readline):
            figures = await drive(call, callee_cpu_s, **json.loads(line))
            print(json.dumps(figures), flush=True)


def _dumps(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


def main() -> None:
    """Be one of the two processes of the baseline."""
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--call", type=int, metavar="PORT", help="call that port, else serve")
    port = parser.parse_args().call
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve() if port is None else _call(port))


if __name__ == "__main__":
    main()
