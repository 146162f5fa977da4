"""The two cases that repeat one large call for long, and look at each: scaled to a test.

The public cases take their numbers from flags, and so do these from their ``Soak``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc

from tests.contract.interop.calls import TIMEOUT_S, Client, size_of
from tests.contract.interop.cases import LARGE_RESPONSE_BYTES, large_request


@dataclass(frozen=True, kw_only=True)
class Soak:
    """How much is asked for.

    Attributes:
        iterations: Calls in all.
        tasks: Calls at once.
        failures_max: Calls that may fail, or take longer than ``latency_s_max``.
        latency_s_max: What one call may take, in seconds.
        overall_s_max: What all may take together, in seconds.
    """

    iterations: int
    tasks: int
    failures_max: int = 0
    latency_s_max: float = 5.0
    overall_s_max: float = 40.0


@dataclass
class Report:
    """What came of it: one latency for each call that succeeded, and why the others did not."""

    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def quantile_ms(self, share: float) -> float:
        """Return the latency that ``share`` of the calls stayed below, in milliseconds."""
        ordered = sorted(self.latencies_s)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1000


async def rpc_soak(client: Client, soak: Soak) -> Report:
    """Every call on one channel."""
    async with client.stub() as stub:
        return await _repeat(lambda: _large_call(stub), soak)


async def channel_soak(client: Client, soak: Soak) -> Report:
    """Every call on a channel of its own, which is closed after it."""

    async def once() -> None:
        async with client.stub() as stub:
            await _large_call(stub)

    return await _repeat(once, soak)


async def _large_call(stub: object) -> None:
    response = await stub.UnaryCall(large_request(), timeout=TIMEOUT_S)  # type: ignore[attr-defined]
    assert LARGE_RESPONSE_BYTES == size_of(response)


async def _repeat(once: Callable[[], Awaitable[None]], soak: Soak) -> Report:
    report = Report()
    left = iter(range(soak.iterations))

    async def work() -> None:
        for _ in left:
            begun_s = time.monotonic()
            try:
                await once()
            except grpc.RpcError as error:
                report.failures.append(repr(error))
                continue
            took_s = time.monotonic() - begun_s
            report.latencies_s.append(took_s)
            if took_s > soak.latency_s_max:
                report.failures.append(f"took {took_s:.1f} s")

    async with asyncio.timeout(soak.overall_s_max), asyncio.TaskGroup() as group:
        for _ in range(soak.tasks):
            group.create_task(work())
    return report
