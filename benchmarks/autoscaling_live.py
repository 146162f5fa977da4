"""``make bench NAME=autoscaling-live``: replicas that follow the load of a real mesh.

*Step*: calls of 50 ms come by a schedule through the ingress, three quarters of what one replica
shall have, then at once as many as eight shall have. It is measured when the decision falls, how
long the replicas take, and when calls that begin are answered in time again.
*From zero*: a call to a deployment without a replica, compared with what its first replica says it
took to start. Each is repeated; results are medians with quartiles.
Exit code: 0 when every target is met, 1 when one is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
import uvloop

import pyserve
from benchmarks.chaos.load import OpenLoop, perform
from benchmarks.comparison import Spread
from benchmarks.machine import ROOT, stamp
from pyserve.driver.status import DeploymentStatusOverview
from services.echo.service import app as echo

_RESULTS = ROOT / "benchmarks" / "results" / "autoscaling-live.json"
# Ray Serve's defaults: the calls that a replica should have at once, and those that it may have.
TARGET_ONGOING, ONGOING_MAX = 2, 5
WORK_S = 0.05
# Of one replica's load, before the step: more would ask for a second one now and then.
_SHARE_BEFORE = 0.75
DECISION_S_MAX = 1.0
P99_S_MAX = 3 * WORK_S
# From the last replica's readiness until calls are answered in time.
RECOVERY_S_MAX = 1.0
FROM_ZERO_EXTRA_S_MAX = 0.2
_STEADY_S = 3.0
_LOOK_INTERVAL_S = 0.02
_TIMEOUT_S = 60.0
_NAME = "live"


@dataclass(frozen=True)
class Step:
    """What became of one step; times in seconds from the step unless they say otherwise.

    Attributes:
        decision_s: As many as the load takes were wanted.
        ready_s: All of them served.
        recovery_s: From then until each call that began was answered within ``P99_S_MAX``, but
            for one in a hundred.
        p99_after_s: Of calls that began one to four seconds after ``ready_s``.
        failed: Calls by status that were not answered well.
    """

    decision_s: float
    ready_s: float
    recovery_s: float
    p99_after_s: float
    calls: int
    failed: Mapping[str, int]


@dataclass(frozen=True)
class FromZero:
    """One call to a deployment without a replica: its time, and that of the replica's start."""

    answered_s: float
    start_s: float

    @property
    def extra_s(self) -> float:
        """The duration of the call beyond the start."""
        return self.answered_s - self.start_s


def found() -> DeploymentStatusOverview:
    """Return the state of the only deployment; it blocks for milliseconds."""
    (deployment,) = pyserve.status().applications[_NAME].deployments.values()
    return deployment


async def step(replicas: int) -> Step:
    """Let the load of one replica become that of so many, in the mesh that runs."""
    config = {"max_replicas": replicas, "target_ongoing_requests": TARGET_ONGOING}
    deployment: pyserve.Deployment[object] = echo.deployment.options(
        autoscaling_config=config, max_ongoing_requests=ONGOING_MAX
    )
    await asyncio.to_thread(pyserve.run, deployment.bind(), name=_NAME)
    rate_per_s = TARGET_ONGOING / WORK_S
    rates = (_SHARE_BEFORE * rate_per_s, (replicas - _SHARE_BEFORE) * rate_per_s)
    stop = asyncio.Event()
    (address, *_) = pyserve.status().addresses
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            call = perform(channel, WORK_S)
            loads = [OpenLoop([call], each) for each in rates]
            before = asyncio.create_task(loads[0].run(stop))
            await asyncio.sleep(_STEADY_S)
            begun = time.monotonic()
            more = asyncio.create_task(loads[1].run(stop))
            try:
                decision_s = await _when(lambda: found().wanted == replicas) - begun
                ready = await _when(lambda: _serving() == replicas)
                await asyncio.sleep(1.0 + _STEADY_S)
            finally:
                stop.set()
                await asyncio.gather(before, more)
    finally:
        await asyncio.to_thread(pyserve.delete, _NAME)
    ended = loads[0].ended + loads[1].ended
    calls = sorted(
        (end - took, took)
        for load in loads
        for end, took in zip(load.ends_s, load.latencies_s, strict=True)
    )
    return Step(
        decision_s=decision_s,
        ready_s=ready - begun,
        recovery_s=recovered_after(ready, calls, P99_S_MAX),
        p99_after_s=_p99([took for at, took in calls if 1.0 <= at - ready < 1.0 + _STEADY_S]),
        calls=ended.total(),
        failed={status: count for status, count in ended.items() if status != "OK"},
    )


def recovered_after(moment: float, calls: Sequence[tuple[float, float]], limit_s: float) -> float:
    """Return how long after a moment the 99th percentile is within a limit for good.

    Args:
        moment: On the clock of the calls.
        calls: When each began and how long it took, in the order of their beginnings.
        limit_s: Of the percentile, over the calls that begin from a time on.
    """
    late = 0
    for behind, (begun, took) in enumerate(reversed(calls), 1):
        late += took > limit_s
        # Fewer than a hundred calls say nothing of one in a hundred.
        if late * 100 > max(behind, 100):
            return max(begun - moment, 0.0)
    return 0.0


async def from_zero(repeats: int, rest_s: float) -> list[FromZero]:
    """Call a deployment that has no replica, again and again, in the mesh that runs.

    Args:
        repeats: How often.
        rest_s: Between the end of the last replica and the next call, in which a spare may come.
    """
    config = {"min_replicas": 0, "max_replicas": 1, "downscale_to_zero_delay_s": 0.2}
    deployment: pyserve.Deployment[object] = echo.deployment.options(
        autoscaling_config={**config, "look_back_period_s": 1.0, "downscale_delay_s": 0.2}
    )
    await asyncio.to_thread(pyserve.run, deployment.bind(), name=_NAME)
    (address, *_) = pyserve.status().addresses
    outcomes = []
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            call = perform(channel, 0.0)
            for _ in range(repeats):
                await _when(lambda: not found().replicas)
                former = _start_s()
                await asyncio.sleep(rest_s)
                begun = time.monotonic()
                status = await call()
                answered_s = time.monotonic() - begun
                if status != "OK":
                    raise RuntimeError(f"a call to a deployment at zero ended with {status}")
                # It is told when autoscaling looks the next time.
                await _when(lambda former=former: _start_s() != former)  # type: ignore[misc]
                outcomes.append(FromZero(answered_s, _start_s()))
    finally:
        await asyncio.to_thread(pyserve.delete, _NAME)
    return outcomes


def _start_s() -> float:
    scaling = found().scaling
    assert scaling is not None, "it scales"
    return scaling.ready_after_s


def _serving() -> int:
    return sum(each.state == "RUNNING" for each in found().replicas)


async def _when(condition: Callable[[], bool]) -> float:
    """Return the time at which a condition was seen to hold."""
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            if await asyncio.to_thread(condition):
                return time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL_S)


def _p99(latencies_s: Sequence[float]) -> float:
    return statistics.quantiles(latencies_s, n=100, method="inclusive")[98]


def report_of(steps: Sequence[Step], from_zeros: Sequence[FromZero]) -> dict[str, object]:
    """Return plain data, and what misses a target by its median; failed calls by each."""
    names = ("decision_s", "ready_s", "recovery_s", "p99_after_s")
    spreads = {name: Spread.of([getattr(each, name) for each in steps]) for name in names}
    zeros = {
        name: Spread.of([getattr(each, name) for each in from_zeros])
        for name in ("answered_s", "start_s", "extra_s")
    }
    missed = [
        f"{name} is {spread.median:.3f}, at most {limit:g} is allowed"
        for name, spread, limit in (
            ("decision_s", spreads["decision_s"], DECISION_S_MAX),
            ("recovery_s", spreads["recovery_s"], RECOVERY_S_MAX),
            ("p99_after_s", spreads["p99_after_s"], P99_S_MAX),
            ("extra_s", zeros["extra_s"], FROM_ZERO_EXTRA_S_MAX),
        )
        if spread.median > limit
    ]
    missed += [f"calls failed: {dict(each.failed)}" for each in steps if each.failed]
    return {
        "step": {
            "calls": sum(each.calls for each in steps),
            **{name: asdict(spread) for name, spread in spreads.items()},
        },
        "from_zero": {name: asdict(spread) for name, spread in zeros.items()},
        "missed": missed,
    }


async def _measure(options: argparse.Namespace) -> dict[str, object]:
    steps = [await step(options.replicas) for _ in range(options.steps)]
    return report_of(steps, await from_zero(options.repeats, options.rest_s))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.autoscaling_live")
    parser.add_argument("--steps", type=int, default=5, help="how often the load steps up")
    parser.add_argument("--replicas", type=int, default=8, help="that the load takes then")
    parser.add_argument("--repeats", type=int, default=15, help="how often it is called at zero")
    parser.add_argument("--rest-s", type=float, default=3.0, help="at zero, before each call")
    parser.add_argument("--spares", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args(arguments)
    # A mesh that runs on this machine already is none of our business.
    for name in [name for name in os.environ if name.startswith("PYSERVE_")]:
        del os.environ[name]
    reports: dict[str, dict[str, object]] = {}
    for spares in options.spares:
        with tempfile.TemporaryDirectory(prefix="pyserve-live-") as home:
            os.environ.update(PYSERVE_HOME=home, PYSERVE_SPARE_REPLICAS=str(spares))
            pyserve.start(address="127.0.0.1:0")
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    reports[f"spares_{spares}"] = runner.run(_measure(options))
            finally:
                pyserve.shutdown()
    text = json.dumps({"machine": stamp(), **reports}, indent=2) + "\n"
    options.output.write_text(text, encoding="utf-8")
    print(_table(reports), f"report: {options.output}", sep="\n")
    return 1 if any(report["missed"] for report in reports.values()) else 0


def _table(reports: Mapping[str, Mapping[str, object]]) -> str:
    lines = []
    for name, report in reports.items():
        for part in ("step", "from_zero"):
            figures = report[part]
            assert isinstance(figures, Mapping)
            for figure, spread in figures.items():
                if isinstance(spread, Mapping):
                    lines.append(
                        f"{name}  {part:9}  {figure:16}  median {spread['median']:6.3f}  quartiles "
                        f"{spread['lower_quartile']:6.3f} to {spread['upper_quartile']:6.3f}  "
                        f"most {spread['most']:6.3f}"
                    )
        missed = report["missed"]
        assert isinstance(missed, list)
        lines += [f"{name}  MISSED: {each}" for each in missed]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
