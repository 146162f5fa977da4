"""services/echo on a bare server: grpc.aio with uvloop, the baseline, or pyserve.aio.

Prints its address and process id as one line of JSON and serves until its standard input ends,
so that it cannot outlive who started it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from types import ModuleType

import uvloop

from services.echo import echo_pb2_grpc
from services.echo.service import Echo


async def serve(library: ModuleType) -> None:
    """Serve until standard input ends; ``library`` has grpc.aio's interface."""
    server = library.server()
    echo_pb2_grpc.add_EchoServicer_to_server(Echo.target(), server)  # type: ignore[attr-defined]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"address": f"127.0.0.1:{port}", "pid": os.getpid()}), flush=True)
    await end_of_input()
    await server.stop(1.0)


async def end_of_input() -> None:
    """Return when the process that started this one has closed its standard input."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def on_readable() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin)
            ended.set()

    loop.add_reader(sys.stdin, on_readable)
    await ended.wait()


def main() -> None:
    """Run the server that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=["grpc.aio", "pyserve.aio"], required=True)
    options = parser.parse_args()
    if options.library == "grpc.aio":
        import grpc.aio as library
    else:
        from pyserve import aio as library  # type: ignore[no-redef]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(library))


if __name__ == "__main__":
    main()
