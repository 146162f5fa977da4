"""The three scenarios: each drives a mesh that runs, and returns figures and what is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyserve
from benchmarks.chaos.applications import PLACES, REPLICAS, WORK_S, Mood
from benchmarks.chaos.load import Call, OpenLoop, ask, perform
from benchmarks.cpu import mesh_pids, read_table
from pyserve.driver.status import ReplicaStatus

ROLLING_RATE_PER_S = 500.0
_RESTART_TIMEOUT_S = 60.0
_LOOK_INTERVAL_S = 0.05
_RAMP_S = 0.5

FAILING_RATE_PER_S = 200.0
ATTEMPTS_PER_CALL_MAX = 1.2
# Repetitions that a router allows in ten seconds however few calls there are: as many may stand
# beside the share of those calls that its window has forgotten (router_rs/core/src/router).
REPETITIONS_MIN = 10
# Fewer attempts would show that nothing was repeated, and so nothing of the budget.
ATTEMPTS_PER_CALL_MIN = 1.1
_RECOVERY_S = 1.0

OVERLOAD = 3.0
GOODPUT_MIN = 0.9
# Of one process, from when its queues and buffers are full.
GROWTH_MAX_BYTES = 8 * 2**20
_CONNECTIONS = 4


@dataclass(frozen=True)
class Outcome:
    """The findings of a scenario.

    Attributes:
        figures: Plain data for the report.
        problems: What must not be, in words; empty: all is well.
    """

    figures: dict[str, object]
    problems: list[str] = field(default_factory=list)


async def rolling_restart(address: str, *, rounds: int = 1) -> Outcome:
    """Restart every replica by SIGTERM, the next once its successor is announced.

    Half of the calls come in through the ingress, half by a router in this process.

    Args:
        address: Of the ingress.
        rounds: How often each replica is replaced.
    """
    handle = pyserve.DeploymentHandle("Echo", "default")
    async with pyserve.aio.insecure_channel(address) as outside, handle.channel() as inside:
        calls = [perform(channel, WORK_S) for channel in (outside, inside)]
        load = OpenLoop(calls, ROLLING_RATE_PER_S)
        stop = asyncio.Event()
        driving = asyncio.create_task(load.run(stop))
        try:
            await asyncio.sleep(_RAMP_S)
            restarted = 0
            for _ in range(rounds):
                for replica in await _running():
                    await _replace(replica)
                    restarted += 1
        finally:
            stop.set()
            await driving
    failed = load.ended.total() - load.ended["OK"]
    problems = [f"{failed} of {load.ended.total()} calls failed: {dict(load.ended)}"]
    figures = {**load.figures(), "restarted": restarted, "rate_per_s": ROLLING_RATE_PER_S}
    return Outcome(figures, problems if failed else [])


async def _replace(replica: ReplicaStatus) -> None:
    before = {each.replica_id for each in await _running()}
    os.kill(replica.pid, signal.SIGTERM)
    async with asyncio.timeout(_RESTART_TIMEOUT_S):
        while {each.replica_id for each in await _running()} <= before:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_INTERVAL_S)


async def _running() -> list[ReplicaStatus]:
    status = await asyncio.to_thread(pyserve.status)
    (deployment,) = status.applications["default"].deployments.values()
    return [each for each in deployment.replicas if each.state == "RUNNING"]


async def all_failing(*, seconds: float) -> Outcome:
    """Let all replicas fail for a time, from the first call on, then let them recover."""
    handle = pyserve.DeploymentHandle("Moody", "default").options(idempotent=True)
    call = ask(handle, "well")
    await handle.broadcast("turn", Mood.FAILING)
    load = OpenLoop([call], FAILING_RATE_PER_S)
    await load.run_for(seconds)
    attempts = sum(await handle.broadcast("attempts", Mood.FAILING))
    await handle.broadcast("turn", Mood.WELL)
    recovered = OpenLoop([call], FAILING_RATE_PER_S)
    await recovered.run_for(_RECOVERY_S)
    calls = load.ended.total()
    attempts_max = ATTEMPTS_PER_CALL_MAX * calls + REPETITIONS_MIN
    problems = []
    if not ATTEMPTS_PER_CALL_MIN * calls <= attempts <= attempts_max:
        problems.append(f"{attempts} attempts for {calls} calls")
    if {"UNAVAILABLE"} != set(load.ended):
        problems.append(f"calls of failing replicas ended {dict(load.ended)}")
    if {"OK"} != set(recovered.ended):
        problems.append(f"calls of replicas that are well again ended {dict(recovered.ended)}")
    figures = {
        **load.figures(),
        "attempts": attempts,
        "attempts_per_call": round(attempts / calls, 3),
    }
    return Outcome({**figures, "recovered": recovered.figures()}, problems)


async def overload(address: str, *, seconds: float) -> Outcome:
    """Offer three times of what the replicas can answer.

    Args:
        address: Of the ingress.
        seconds: How long; capacity is measured for half as long before.
    """
    channels = [pyserve.aio.insecure_channel(address) for _ in range(_CONNECTIONS)]
    try:
        calls = [perform(channel, WORK_S) for channel in channels]
        capacity = await _capacity(calls, seconds / 2)
        load = OpenLoop(calls, OVERLOAD * capacity)
        driving = asyncio.create_task(load.run_for(seconds))
        await asyncio.sleep(seconds / 3)
        pids = mesh_pids(pyserve.status())
        begun_s, before = time.monotonic(), _memory(pids)
        await asyncio.sleep(seconds / 3)
        ended_s, after = time.monotonic(), _memory(pids)
        await driving
    finally:
        for channel in channels:
            await channel.close()
    answered = sum(begun_s <= end < ended_s for end in load.ends_s)
    goodput = answered / (ended_s - begun_s) / capacity
    growth = max(now - then for then, now in zip(before, after, strict=True))
    problems = []
    if goodput < GOODPUT_MIN:
        problems.append(f"goodput is {goodput:.2f} of capacity")
    if growth > GROWTH_MAX_BYTES:
        problems.append(f"a process has grown by {growth / 2**20:.1f} MiB")
    if set(load.ended) != {"OK", "RESOURCE_EXHAUSTED"}:
        problems.append(f"calls ended {dict(load.ended)}")
    figures = {**load.figures(), "capacity_per_s": round(capacity, 1)}
    figures |= {"goodput": round(goodput, 3), "growth_bytes": growth, "memory_bytes": after}
    return Outcome(figures, problems)


async def _capacity(calls: list[Call], seconds: float) -> float:
    """Return the answers a second of a closed loop with as many clients as places, and one more."""
    end_s = time.monotonic() + seconds
    begun_s = end_s - seconds

    async def client(call: Call) -> int:
        answers = 0
        while time.monotonic() < end_s:
            answers += await call() == "OK"
        return answers

    clients = [client(calls[number % len(calls)]) for number in range(REPLICAS * PLACES + 1)]
    answers = sum(await asyncio.gather(*clients))
    return answers / (time.monotonic() - begun_s)


def _memory(pids: Iterable[int]) -> list[int]:
    table = read_table()
    return [table[pid].rss_bytes for pid in pids]
