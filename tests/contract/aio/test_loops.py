"""Servers and channels on loops of every kind, and in processes that fork or just end."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
import uvloop

import pyserve.aio
from tests.contract.aio.sides import PYSERVE, SERVICE, Network, Stub, echo, unary, within

Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def _round_trip() -> bytes:
    network = Network(PYSERVE, PYSERVE)
    stub = await network.serve({"Call": unary(echo)})
    response: bytes = await within(stub.unary()(b"x"))
    await network.close()
    return response


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_loops_follow_each_other(run: Run) -> None:
    assert [b"x"] * 5 == [run(_round_trip()) for _ in range(5)]


def test_threads_have_loops_of_their_own() -> None:
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: answers.append(asyncio.run(_round_trip())))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [b"x"] * 4 == answers


def test_a_channel_moves_to_the_next_loop_but_not_between_open_ones() -> None:
    channel: Any = None

    async def serve_and_call() -> bytes:
        nonlocal channel
        network = Network(PYSERVE, PYSERVE)
        _, address = await network.start({"Call": unary(echo)})
        channel = pyserve.aio.insecure_channel(address)
        response: bytes = await within(Stub(channel).unary()(b"x"))

        def call_from_elsewhere() -> str:
            with pytest.raises(RuntimeError, match="another event loop") as caught:
                asyncio.run(_call(channel))
            return str(caught.value)

        assert "one channel per loop" in await asyncio.to_thread(call_from_elsewhere)
        await network.close()
        return response

    assert b"x" == asyncio.run(serve_and_call())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        asyncio.run(_call(channel))
    assert grpc.StatusCode.UNAVAILABLE is caught.value.code()


async def _call(channel: Any) -> bytes:
    response: bytes = await within(channel.unary_unary(f"/{SERVICE}/Call")(b"x"))
    return response


def _script(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


PREAMBLE = """
import asyncio, contextlib, os, socket, sys
import grpc
import pyserve.aio

async def echo(request, context):
    return request

async def start():
    server = pyserve.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_registered_method_handlers("s.S", {"Call": handler})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port
"""


def test_a_forgotten_server_lets_the_process_end() -> None:
    done = _script(
        PREAMBLE
        + """
async def main():
    server, port = await start()
    channel = pyserve.aio.insecure_channel(f"127.0.0.1:{port}")
    print(await channel.unary_unary("/s.S/Call")(b"x"))

asyncio.run(main())
"""
    )
    assert ("b'x'\n", "", 0) == (done.stdout, done.stderr, done.returncode)


def test_a_forked_child_gets_a_clear_error() -> None:
    done = _script(
        PREAMBLE
        + """
def listening():
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            with socket.socket(fileno=os.dup(int(name))) as one:
                count += one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return count

async def use(channel):
    await channel.unary_unary("/s.S/Call")(b"x")

async def main():
    server, port = await start()
    channel = pyserve.aio.insecure_channel(f"127.0.0.1:{port}")
    await channel.unary_unary("/s.S/Call")(b"x")
    assert listening() == 1
    child = os.fork()
    if child == 0:
        asyncio._set_running_loop(None)
        answers = [listening()]
        for attempt in (lambda: use(channel), start):
            try:
                asyncio.run(attempt())
            except RuntimeError as error:
                answers.append("fork" in str(error))
        os._exit(0 if answers == [0, True, True] else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(await channel.unary_unary("/s.S/Call")(b"still fine"))
    await channel.close()
    await server.stop(None)

asyncio.run(main())
"""
    )
    assert ("0\nb'still fine'\n", 0) == (done.stdout, done.returncode), done.stderr
