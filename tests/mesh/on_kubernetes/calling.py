"""Calls at a steady rate, and what became of each."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections import Counter
from typing import Self

import grpc

from services.digits import digits_pb2, digits_pb2_grpc

PER_SECOND = 200
_TIMEOUT_S = 10.0
_TICK_S = 0.005
_PIXELS = bytes(64)


class Calls:
    """Calls digits 200 times a second until the end of the context, whether it answers or not.

    Args:
        address: Of an ingress or of a Service.

    Attributes:
        by_replica: Answers, by who gave them.
        labels: Answers, by what they say.
        failed: Calls that were not answered within ten seconds, by status and text.
    """

    def __init__(self, address: str) -> None:
        self.by_replica: Counter[str] = Counter()
        self.labels: Counter[int] = Counter()
        self.failed: Counter[str] = Counter()
        self._took_s: list[float] = []
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(3 * _TIMEOUT_S)

    @property
    def count(self) -> int:
        """How many have been answered."""
        return self.by_replica.total()

    def __str__(self) -> str:
        """Return how many there were, and how long they took."""
        parts = statistics.quantiles(self._took_s, n=100)
        return (
            f"{self.count} calls answered in {1000 * parts[49]:.1f} ms (p50), "
            f"{1000 * parts[98]:.1f} ms (p99), {1000 * max(self._took_s):.0f} ms at most; "
            f"failed: {dict(self.failed) or 0}"
        )

    async def _run(self) -> None:
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub: digits_pb2_grpc.DigitsAsyncStub = digits_pb2_grpc.DigitsStub(channel)
            begun, made = time.monotonic(), 0
            async with asyncio.TaskGroup() as calls:
                while not self._over.is_set():
                    due = int((time.monotonic() - begun) * PER_SECOND)
                    for _ in range(made, due):
                        calls.create_task(self._call(stub))
                    made = due
                    await asyncio.sleep(_TICK_S)

    async def _call(self, stub: digits_pb2_grpc.DigitsAsyncStub) -> None:
        request = digits_pb2.ClassifyRequest(pixels=_PIXELS)
        begun = time.monotonic()
        try:
            reply = await stub.Classify(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            self.failed[f"{error.code().name}: {error.details()}"] += 1
        else:
            self._took_s.append(time.monotonic() - begun)
            self.by_replica[reply.replica_id] += 1
            self.labels[reply.label] += 1
