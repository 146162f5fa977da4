"""``make bench NAME=routing``: the router benchmarks that Ray Serve's guides print, on one machine.

Sleeping replicas under a closed loop, an ensemble of ten, many no-op replicas, and the recursive
maze in which every request of the guide timed out. The guides' figures stand beside ours; they are
of other machines, so they are no ratios. And sessions of replicas with caches, with a bound and
without.

Before them what a decision takes, and a call that waits for a place (``native.py``).

Exit code: 0 when every call was answered rightly, 1 when one was not.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pyserve
from benchmarks.machine import ROOT, stamp
from benchmarks.routing import applications, native
from pyserve import DeploymentHandle

_RESULTS = ROOT / "benchmarks" / "results" / "routing.json"
_TIMEOUT_S = 30.0
# Calls an application, and returns the measurements.
Work = Callable[[DeploymentHandle], Coroutine[Any, Any, dict[str, object]]]


class Clients:
    """A closed loop: each client calls again as soon as it was answered."""

    def __init__(self, call: Callable[[int], Awaitable[object]]) -> None:
        self._call = call
        self._number = 0
        self.latencies_s: list[float] = []
        self.failures: list[str] = []

    async def run(self, clients: int, seconds: float, *, calls_max: int | None = None) -> float:
        """Call for so long, or so often; returns how long it took."""
        started = time.monotonic()
        end = started + seconds

        async def client() -> None:
            while time.monotonic() < end and (calls_max is None or self._number < calls_max):
                self._number += 1
                before = time.monotonic()
                try:
                    await self._call(self._number)
                except Exception as error:
                    self.failures.append(f"{type(error).__name__}: {error}")
                self.latencies_s.append(time.monotonic() - before)

        await asyncio.gather(*(client() for _ in range(clients)))
        return time.monotonic() - started

    def forget(self) -> None:
        """Leave out what was only a warm-up."""
        self.latencies_s.clear()

    def figures(self, took_s: float) -> dict[str, object]:
        """Return rate and latency of what was measured."""
        cuts = statistics.quantiles(self.latencies_s, n=100, method="inclusive")
        return {
            "calls": len(self.latencies_s),
            "calls_per_s": round(len(self.latencies_s) / took_s, 2),
            "mean_ms": round(statistics.fmean(self.latencies_s) * 1e3, 2),
            "p50_ms": round(cuts[49] * 1e3, 2),
            "p99_ms": round(cuts[98] * 1e3, 2),
            "failures": self.failures[:5],
            "failed": len(self.failures),
        }


async def sleepers(handle: DeploymentHandle, replicas: int, seconds: float) -> dict[str, object]:
    """Two users for each replica, which can take two calls: 100 % load."""
    clients = Clients(lambda _: handle.options(timeout_s=_TIMEOUT_S).remote())
    await clients.run(2 * replicas, min(10.0, seconds / 3))
    clients.forget()
    await handle.reset.remote()
    # Measured before the last calls end, after which no other calls come.
    measured = asyncio.create_task(_later(seconds, handle))
    took_s = await clients.run(2 * replicas, seconds)
    utilisation = sorted(await measured)
    quartiles = statistics.quantiles(utilisation, n=4, method="inclusive")
    names = ("utilisation_p25", "utilisation_p50", "utilisation_p75")
    shares = {name: round(value, 4) for name, value in zip(names, quartiles, strict=True)}
    return {**clients.figures(took_s), **shares}


async def _later(seconds: float, handle: DeploymentHandle) -> list[float]:
    await asyncio.sleep(seconds)
    return list(await handle.utilisations.remote())


async def ensemble(handle: DeploymentHandle) -> dict[str, object]:
    """Four clients with twenty requests each."""

    async def call(number: int) -> None:
        total = await handle.remote(number)
        if total != 10 * number:
            raise AssertionError(f"the ensemble of {number} makes {total}")

    clients = Clients(call)
    return clients.figures(await clients.run(4, 60.0, calls_max=80))


async def plain(handle: DeploymentHandle, clients_count: int, seconds: float) -> dict[str, object]:
    """Clients that call again at once."""
    clients = Clients(lambda _: handle.options(timeout_s=_TIMEOUT_S).remote())
    await clients.run(clients_count, 1.0)
    clients.forget()
    return clients.figures(await clients.run(clients_count, seconds))


async def sessions(handle: DeploymentHandle, seconds: float) -> dict[str, object]:
    """32 clients ask for 200 sessions, a few of them often (Zipf); also the share of the hits."""
    names = [f"session-{number}" for number in range(200)]
    weights = [1 / (rank + 1) for rank in range(len(names))]
    draws = random.Random(1)
    hits: list[bool] = []

    async def call(_: int) -> None:
        (session,) = draws.choices(names, weights)
        call = handle.options(session_id=session, timeout_s=_TIMEOUT_S)
        hits.append(await call.remote(session))

    clients = Clients(call)
    await clients.run(32, min(4.0, seconds / 2))
    clients.forget()
    hits.clear()
    took_s = await clients.run(32, seconds)
    return {**clients.figures(took_s), "hits": round(statistics.fmean(hits), 4)}


async def maze(handle: DeploymentHandle, seconds: float) -> dict[str, object]:
    """Each call goes through up to five random deployments."""
    clients = Clients(lambda seed: handle.options(timeout_s=_TIMEOUT_S).remote(seed))
    return clients.figures(await clients.run(16, seconds))


def measure(
    name: str,
    application: Any,
    work: Work,
) -> dict[str, object]:
    """Deploy, measure, and take away."""
    handle = pyserve.run(application, timeout_s=300.0)
    try:
        figures = asyncio.run(work(handle))
    finally:
        pyserve.delete("default")
    print(name, json.dumps(figures), flush=True)
    return figures


def measurements(seconds: float, many: int) -> Iterator[tuple[str, Callable[[], Any], Work]]:
    """Yield what is measured on a mesh: its name, its application and what is asked of it."""
    for policy in ("predicted", "p2c"):
        app = functools.partial(applications.sleepers, 8, 1.0, policy)
        yield f"router_8_{policy}", app, lambda handle: sleepers(handle, 8, seconds)
    yield "ensemble_10", applications.ensemble, ensemble
    for replicas in (8, many):
        app = functools.partial(applications.noops, replicas)
        yield f"noop_{replicas}", app, lambda handle: plain(handle, 64, seconds / 4)
    app = functools.partial(applications.maze, 2)
    yield "maze_10x2", app, lambda handle: maze(handle, seconds / 4)
    for name, load_bound in (("sessions_6", 1.25), ("sessions_6_without_bound", 1000.0)):
        app = functools.partial(applications.caches, load_bound)
        yield name, app, lambda handle: sessions(handle, seconds / 4)


def main() -> int:
    """Measure everything, print it, write ``results/routing.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    parser.add_argument("--noop-replicas", type=int, default=32)
    parser.add_argument("--only", default="", help="what has this in its name; nothing is written")
    parser.add_argument("--output", default=str(_RESULTS))
    options = parser.parse_args()
    results: dict[str, object] = {"machine": stamp(), "seeds": SEEDS}
    for work in (native.picks, native.loaded, native.parked):
        if options.only in work.__name__:
            results[work.__name__] = work()
            print(work.__name__, json.dumps(results[work.__name__]), flush=True)
    pyserve.start(address="127.0.0.1:0")
    try:
        for name, application, ask in measurements(options.seconds, options.noop_replicas):
            if options.only in name:
                results[name] = measure(name, application(), ask)
    finally:
        pyserve.shutdown(grace_s=1.0)
    failed = [name for name, figures in results.items() if _failed(figures)]
    if failed:
        print(f"calls failed in {failed}")
    if not options.only:
        text = json.dumps(results, indent=2) + "\n"
        Path(options.output).write_text(text, encoding="utf-8")
        print(f"results: {options.output}")
    return 1 if failed else 0


def _failed(figures: object) -> bool:
    return isinstance(figures, dict) and bool(figures.get("failed"))


# The figures that the guides print, measured on their own machines.
SEEDS = {
    "router_8": "two random picks with sleeping backoff; no figures printed",
    "ensemble_10": "8.75 calls/s, 126 ms (one machine of 32 cores)",
    "noop_8": "3 000 to 4 000 requests/s over HTTP, 8 cores",
    "noop_1000": "553 requests/s for each of 33 machines, p50 8.8 ms, p99 56.5 ms",
    "maze": "10 deployments of 100 replicas, five deep: 6 964 requests, all timed out",
}


if __name__ == "__main__":
    raise SystemExit(main())
