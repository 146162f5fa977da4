"""The FastAPI application under uvicorn, one process, with uvloop and httptools.

Prints its address and process id as one line of JSON and serves until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket

import uvicorn

from benchmarks.aio_server import end_of_input
from benchmarks.doors.applications import fastapi_app


async def serve() -> None:
    """Serve until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        fastapi_app, loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    print(json.dumps({"address": f"127.0.0.1:{port}", "pid": os.getpid()}), flush=True)
    await end_of_input()
    server.should_exit = True
    await serving


def main() -> None:
    """Run the server on the loop that uvicorn would choose."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


if __name__ == "__main__":
    main()
