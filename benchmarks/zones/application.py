"""What runs on the hosts: services/echo, which waits, and writes down whom it has answered."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import grpc

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc

JOURNALS_VARIABLE = "ZONES_JOURNALS"
WORK_S = 0.01
PLACES = 4

Context = grpc.aio.ServicerContext[object, object]


class Echo(echo_pb2_grpc.EchoServicer):
    """Answers with the request's payload, which is the caller's zone."""

    def __init__(self) -> None:
        replica = pyserve.get_replica_context().replica_id
        path = Path(os.environ[JOURNALS_VARIABLE]) / f"{os.environ['PYSERVE_ZONE']}-{replica}"
        # Whole lines at once, which a killed process has written.
        self._journal = path.open("ab", buffering=0)

    async def Echo(self, request: echo_pb2.EchoRequest, context: Context) -> echo_pb2.EchoReply:  # noqa: ARG002
        self._journal.write(b"%d %b\n" % (time.monotonic_ns(), request.payload))
        await asyncio.sleep(WORK_S)
        return echo_pb2.EchoReply(payload=request.payload)


app = pyserve.deployment(max_ongoing_requests=PLACES)(Echo).bind()
