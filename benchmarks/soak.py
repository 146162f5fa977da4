"""``make soak``: a million calls through the ingress, with cancels, deadlines, kills and faults.

In the end every call must have ended exactly once and rightly, every counter of calls in flight
must be zero, and no process may hold more descriptors than before.
Exit code: 0 when all of it holds, 1 when something does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import uvloop

import pyserve
from benchmarks.faults import FAULTS, HEALTH_CHECK_PERIOD_S, HEALTH_CHECK_TIMEOUT_S, Target
from benchmarks.inspection import Inspection, inspect, problems_between
from benchmarks.ledger import Ledger
from benchmarks.machine import ROOT, stamp
from benchmarks.traffic import Caller
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.status import ReplicaStatus
from services.echo import echo_pb2_grpc
from services.echo.service import app

_CHANNELS = 4
# Connections, caches and the allocator's arenas are there after so many calls; what grows then
# is a leak.
_SETTLING_CALLS = 2_000
_SETTLE_TIMEOUT_S = 60.0
_LOOK_INTERVAL_S = 0.1
# The longest back-off of a replica that died again and again, and its start.
_RESTART_TIMEOUT_S = 120.0
_SHUTDOWN_GRACE_S = 30.0
# A drain that waits for nobody ends within a few seconds; one that waits for a leaked counter
# takes the whole grace.
_SHUTDOWN_S_MAX = 15.0


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    calls: int
    kills: int
    replicas: int
    in_flight: int
    seed: int
    client: str
    output: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak, write its report and return the exit code."""
    settings = _settings(arguments)
    with tempfile.TemporaryDirectory(prefix="pyserve-soak-") as home:
        # A mesh that runs on this machine already is none of our business.
        for name in [name for name in os.environ if name.startswith("PYSERVE_")]:
            del os.environ[name]
        os.environ["PYSERVE_HOME"] = home
        report = _soak(settings)
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    settings.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: report[key] for key in _PRINTED}, indent=1))
    print(f"report: {settings.output}")
    return 1 if report["problems"] else 0


_PRINTED = (
    *("calls", "kills", "faults", "calls_per_s", "by_status", "shutdown_s", "problems", "samples"),
)


def _settings(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10, help="replicas killed with SIGKILL")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--client", choices=("grpc.aio", "pyserve.aio"), default="grpc.aio")
    default = ROOT / "benchmarks" / "results" / "soak.json"
    parser.add_argument("--output", type=Path, default=default)
    options = parser.parse_args(arguments)
    if options.calls < 1 or options.kills < 0 or options.replicas < 1 or options.in_flight < 1:
        parser.error("--calls, --replicas and --in-flight must be at least 1, --kills at least 0")
    return Settings(**vars(options))


def _soak(settings: Settings) -> dict[str, object]:
    machine = stamp()
    print(f"seed {settings.seed}", flush=True)
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(app_with(settings.replicas))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            soak = runner.run(_Soak(settings).run())
    finally:
        begun_s = time.monotonic()
        pyserve.shutdown(grace_s=_SHUTDOWN_GRACE_S)
        shutdown_s = time.monotonic() - begun_s
    problems = [*soak.problems()]
    if shutdown_s > _SHUTDOWN_S_MAX:
        problems.append(f"the idle mesh took {shutdown_s:.1f} s to drain")
    return {**soak.report(), "shutdown_s": shutdown_s, "problems": problems, "machine": machine}


def app_with(replicas: int) -> pyserve.Application:
    """Return services/echo with a number of replicas."""
    deployment: pyserve.Deployment[object] = app.deployment.options(
        num_replicas=replicas,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
    )
    return deployment.bind()


class _Soak:
    """One soak on a mesh that runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._random = random.Random(settings.seed)
        self._ledger = Ledger()
        self._kills: list[str] = []
        self._faults: list[str] = []
        self._begun_s = self._elapsed_s = self._calls_per_s = 0.0
        self._before: Inspection | None = None
        self._after: Inspection | None = None

    async def run(self) -> _Soak:
        """Settle, look, drive and kill, settle, and look again."""
        settings = self._settings
        address = pyserve.status().addresses[0]
        async with AsyncExitStack() as stack:
            callers = [await self._caller(stack, address, index) for index in range(_CHANNELS)]
            await self._drive(callers, min(_SETTLING_CALLS, settings.calls // 5))
            self._before = await self._settled()
            self._begun_s = time.monotonic()
            settling_calls = self._ledger.begun
            killer = asyncio.create_task(self._kill_some())
            await self._drive(callers, settings.calls, killer)
            await killer
            self._elapsed_s = time.monotonic() - self._begun_s
            self._calls_per_s = (self._ledger.begun - settling_calls) / self._elapsed_s
            self._ledger.finish()
            self._after = await self._settled()
        return self

    def problems(self) -> list[str]:
        """Return everything that must not be, in words."""
        assert self._before is not None
        assert self._after is not None
        found = [f"{name}: {count}" for name, count in sorted(self._ledger.problems.items())]
        return found + problems_between(self._before, self._after)

    def report(self) -> dict[str, object]:
        """Return what happened as plain data."""
        assert self._before is not None
        assert self._after is not None
        ledger = self._ledger
        return {
            "seed": self._settings.seed,
            "client": self._settings.client,
            "calls": ledger.begun,
            "seconds": self._elapsed_s,
            "calls_per_s": self._calls_per_s,
            "kills": len(self._kills),
            "faults": self._faults,
            "by_status": dict(ledger.totals()),
            "by_kind": {kind: dict(counts) for kind, counts in sorted(ledger.ended.items())},
            "samples": ledger.samples,
            "before": self._before.as_json(),
            "after": self._after.as_json(),
        }

    async def _caller(self, stack: AsyncExitStack, address: str, index: int) -> Caller:
        channel: grpc.aio.Channel
        if self._settings.client == "pyserve.aio":
            channel = pyserve.aio.insecure_channel(address)
        else:
            # Else grpcio would give all channels one connection.
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(address, options=options)
        await stack.enter_async_context(channel)
        draws = random.Random(self._random.randrange(2**63) + index)
        return Caller(echo_pb2_grpc.EchoStub(channel), self._ledger, draws)

    async def _drive(
        self, callers: Sequence[Caller], until: int, killer: asyncio.Task[None] | None = None
    ) -> None:
        """Keep calls in flight until so many have begun and the killer is done; see all ends."""

        async def keep_calling(caller: Caller) -> None:
            while self._ledger.begun < until or not (killer is None or killer.done()):
                await caller.call_once()

        async with asyncio.TaskGroup() as group:
            for index in range(self._settings.in_flight):
                group.create_task(keep_calling(callers[index % len(callers)]))

    async def _kill_some(self) -> None:
        """Kill replicas, spread evenly over the calls, and only while all of them run.

        Before some of the kills something else happens, so that the mesh has to get over both.
        """
        kills, count = self._settings.kills, len(FAULTS)
        for number in range(kills):
            due = self._settings.calls * (number + 1) // (self._settings.kills + 1)
            while self._ledger.begun < due:  # noqa: ASYNC110  # a look now and then costs nothing
                await asyncio.sleep(_LOOK_INTERVAL_S / 10)
            async with asyncio.timeout(_RESTART_TIMEOUT_S):
                running = await self._running_replicas()
            for fault in FAULTS[number * count // kills : (number + 1) * count // kills]:
                home = Path(os.environ["PYSERVE_HOME"])
                target = Target(home, running, lambda: self._ledger.on_kill(time.monotonic()))
                self._faults.append(await fault(target))
            async with asyncio.timeout(_RESTART_TIMEOUT_S):
                victim = self._random.choice(await self._running_replicas())
            self._ledger.on_kill(time.monotonic())
            os.kill(victim.pid, signal.SIGKILL)
            self._kills.append(victim.replica_id)

    async def _running_replicas(self) -> list[ReplicaStatus]:
        """Return the replicas as soon as all that are wanted run, without those killed before."""
        while True:
            status = await asyncio.to_thread(pyserve.status)
            replicas = status.applications["default"].deployments["Echo"].replicas
            running = [
                replica
                for replica in replicas
                if replica.state == "RUNNING" and replica.replica_id not in self._kills
            ]
            if len(running) >= self._settings.replicas:
                return running
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def _settled(self) -> Inspection:
        """Look until every replica runs and nothing is in flight, or time is up."""
        async with asyncio.timeout(_RESTART_TIMEOUT_S):
            await self._running_replicas()
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while True:
            address = find_mesh(read_settings())
            assert address is not None
            found = await inspect(await asyncio.to_thread(pyserve.status), address.token)
            if not found.in_flight() or time.monotonic() > deadline:
                return found
            await asyncio.sleep(_LOOK_INTERVAL_S)


if __name__ == "__main__":
    sys.exit(main())
