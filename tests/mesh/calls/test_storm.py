"""A storm of calls with random cancels and deadlines, through gates that are too small for it."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack

import grpc.aio
import pytest

from benchmarks.ledger import Ledger
from benchmarks.traffic import Caller
from services.echo import echo_pb2_grpc
from tests.mesh.calls.mesh import echo_mesh

pytestmark = pytest.mark.slow

CALLS = 2_000
CHANNELS = 4
IN_FLIGHT = 64
# A drain that waits for nobody; one that waits for a leaked call takes the grace of 20 s.
DRAIN_S_MAX = 15.0


async def test_every_call_ends_once_and_every_counter_returns_to_zero() -> None:
    """With fewer places than calls, most are parked, and some are refused and sent again."""
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(echo_mesh(num_replicas=2, max_ongoing_requests=8))
        callers = []
        for index in range(CHANNELS):
            # Else grpcio would give all channels one connection.
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(mesh.address, options=options)
            await stack.enter_async_context(channel)
            callers.append(Caller(echo_pb2_grpc.EchoStub(channel), ledger, random.Random(index)))

        async def keep_calling(caller: Caller) -> None:
            while ledger.begun < CALLS:
                await caller.call_once()

        async with asyncio.TaskGroup() as group:
            for index in range(IN_FLIGHT):
                group.create_task(keep_calling(callers[index % CHANNELS]))
        ledger.finish()
        assert {} == dict(ledger.problems), ledger.samples
        assert {"OK", "CANCELLED", "DEADLINE_EXCEEDED"} == set(ledger.totals())
        await mesh.settled()
        drain_begun_s = time.monotonic()
    assert time.monotonic() - drain_begun_s < DRAIN_S_MAX
