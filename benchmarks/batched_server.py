"""A server of ``batched.py``, ours in a mesh or the one by hand on grpc.aio with uvloop.

Prints its address and process id as one line of JSON and serves until its standard input ends.
With ``steps SECONDS`` it serves nobody: it prints what the steps allow.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import grpc.aio
import uvloop

import pyserve
from benchmarks.aio_server import end_of_input
from benchmarks.batched import SIZE_MAX, Batched, Plain, step
from benchmarks.cpu import mesh_pids
from services.echo import echo_pb2, echo_pb2_grpc


def serve_mesh() -> None:
    """Run ours: ingress and one replica."""
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(Batched.bind())  # type: ignore[attr-defined]
        status = pyserve.status()
        report = {"address": status.addresses[0], "pids": mesh_pids(status)}
        print(json.dumps(report), flush=True)
        sys.stdin.buffer.read()
    finally:
        pyserve.shutdown(grace_s=1.0)


async def serve_plain() -> None:
    """Run the one by hand: one process, no router."""
    server = grpc.aio.server()
    echo_pb2_grpc.add_EchoServicer_to_server(Plain(), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"address": f"127.0.0.1:{port}", "pid": os.getpid()}), flush=True)
    await end_of_input()
    await server.stop(1.0)


async def step_alone(seconds: float) -> None:
    """Do step after step for that long."""
    requests = [echo_pb2.EchoRequest(payload=bytes(100)) for _ in range(SIZE_MAX)]
    begun, steps = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        await step(requests)
        steps += 1
    answers_per_s = steps * SIZE_MAX / (time.monotonic() - begun)
    print(json.dumps({"answers_per_s": answers_per_s}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "mesh":
        serve_mesh()
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if sys.argv[1] == "plain":
                runner.run(serve_plain())
            else:
                runner.run(step_alone(float(sys.argv[2])))
