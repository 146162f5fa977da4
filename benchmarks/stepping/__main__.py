"""``make bench NAME=stepping``: requests of unequal length, in three forms of the same model.

Each form runs with one replica, and gets the same lengths: once from callers that wait for their
answers, and once at random times, at shares of what the continuous form can do. The forms take
turns.

With ``--litserve`` two more forms take part, which stream each value as an event over HTTP: the
continuous one again, and LitServe's loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyserve
from benchmarks.machine import ROOT, stamp
from benchmarks.stepping.applications import FORMS
from benchmarks.stepping.events import Events
from benchmarks.stepping.model import RUNNING, step_s
from benchmarks.stepping.peers import litserve

RESULTS = Path(__file__).parents[1] / "results" / "stepping.json"
# How many times as long as the shortest request the longest one is; lengths are even in the
# logarithm between them.
SPREADS = (1, 10, 100)
_LONGEST = 100
_CALLERS = 2 * RUNNING
_SHARES = (0.5, 0.8, 0.95)
# Which form each of the others is compared with: one that answers in the same way.
_BESIDE = {"batched": "continuous", "alone": "continuous", "litserve": "events"}
_ENVIRONMENT = ROOT / "target" / "peers" / "litserve"

Call = Callable[[int], Awaitable[object]]
Door = Callable[[], AbstractAsyncContextManager[Call]]


@dataclass(frozen=True)
class Outcome:
    """What one form made of one load.

    Attributes:
        form, spread: Which.
        share: Of the capacity that the load asks for; 0: callers that wait.
        per_s: Requests answered a second.
        mean_ms, p99_ms: Their latency.
    """

    form: str
    spread: int
    share: float
    per_s: float
    mean_ms: float
    p99_ms: float


def lengths(spread: int, count: int, seed: int) -> list[int]:
    """Return how many steps each request takes."""
    rng = random.Random(seed)
    shortest = _LONGEST / spread if spread > 1 else 10
    return [max(1, round(shortest * spread ** rng.random())) for _ in range(count)]


def capacity_per_s(spread: int) -> float:
    """Return how many requests a second keep every place of every step taken."""
    return RUNNING / (step_s(RUNNING) * statistics.fmean(lengths(spread, 20_000, seed=0)))


async def closed(call: Call, form: str, spread: int, seconds: float, seed: int) -> Outcome:
    """Send from callers of which each waits for its answer."""
    works = iter(lengths(spread, 1_000_000, seed))
    latencies: list[float] = []
    begin = time.perf_counter()
    warm, end = begin + 0.25 * seconds, begin + 1.25 * seconds

    async def caller() -> None:
        while (sent := time.perf_counter()) < end:
            await call(next(works))
            now = time.perf_counter()
            if warm <= now < end:
                latencies.append(now - sent)

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
    return _outcome(form, spread, 0.0, latencies, seconds)


async def open_loop(
    call: Call, form: str, spread: int, share: float, seconds: float, seed: int
) -> Outcome:
    """Send at random times, whatever has been answered."""
    rng = random.Random(seed)
    rate = share * capacity_per_s(spread)
    works = iter(lengths(spread, 1_000_000, seed))
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    tasks: list[asyncio.Task[None]] = []

    async def timed(steps: int) -> None:
        sent = loop.time()
        await call(steps)
        latencies.append(loop.time() - sent)

    due = begin = loop.time()
    while due < begin + seconds:
        due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, due - loop.time()))
        tasks.append(loop.create_task(timed(next(works))))
    _, late = await asyncio.wait(tasks, timeout=2 * seconds)
    for task in late:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    latencies += [2 * seconds] * len(late)
    return _outcome(form, spread, share, latencies, seconds)


def _outcome(
    form: str, spread: int, share: float, latencies: list[float], seconds: float
) -> Outcome:
    ranked = sorted(latencies)
    return Outcome(
        form,
        spread,
        share,
        round(len(ranked) / seconds, 1),
        round(1000 * statistics.fmean(ranked), 1),
        round(1000 * ranked[int(0.99 * len(ranked))], 1),
    )


def main() -> None:
    """Play all loads, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument(
        "--litserve", action="store_true", help="beside LitServe, installed from the package index"
    )
    options = parser.parse_args()
    with litserve(_ENVIRONMENT) if options.litserve else nullcontext() as peer:
        pyserve.start(address="127.0.0.1:0")
        for form, deployment in FORMS.items():
            pyserve.run(deployment.bind(), name=form, route_prefix=f"/{form}")
        found = _play_all(_doors(peer), options.rounds, options.seconds)
        pyserve.shutdown()
    ratios = _ratios(found)
    print(json.dumps(ratios, indent=1))
    document = {
        "machine": stamp(),
        "outcomes": [asdict(each) for each in found],
        "ratios": ratios,
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n")


def _doors(peer: str | None) -> dict[str, Door]:
    """Return how each form is called; ``peer``: where LitServe listens."""
    doors: dict[str, Door] = {form: partial(_by_handle, form) for form in FORMS}
    if peer is not None:
        ingress = pyserve.status().addresses[0]
        doors["events"] = partial(_by_events, ingress, "/continuous", None)
        doors["litserve"] = partial(_by_events, peer, "/predict", "steps")
    return doors


@asynccontextmanager
async def _by_handle(form: str) -> AsyncIterator[Call]:
    yield pyserve.get_app_handle(form).remote


@asynccontextmanager
async def _by_events(address: str, path: str, key: str | None) -> AsyncIterator[Call]:
    async with Events(address, path, key) as client:
        yield client.call


def _play_all(doors: dict[str, Door], rounds: int, seconds: float) -> list[Outcome]:
    found: list[Outcome] = []
    for number in range(rounds):
        forms = list(doors)
        first = number % len(forms)
        for spread in SPREADS:
            for form in [*forms[first:], *forms[:first]]:
                played = asyncio.run(_play(doors[form], form, spread, seconds, seed=number))
                print(*played, sep="\n", flush=True)
                found += played
    return found


async def _play(door: Door, form: str, spread: int, seconds: float, seed: int) -> list[Outcome]:
    async with door() as call:
        found = [await closed(call, form, spread, seconds, seed)]
        if form != "alone":  # It can bear none of these loads.
            found += [
                await open_loop(call, form, spread, share, seconds, seed) for share in _SHARES
            ]
    return found


def _ratios(found: list[Outcome]) -> dict[str, Any]:
    """Return throughput and p99 of a continuous form over another's, medians of rounds."""
    ratios: dict[str, Any] = {}
    for spread in SPREADS:
        for share in (0.0, *_SHARES):
            of: dict[str, list[Outcome]] = {}
            for each in found:
                if (each.spread, each.share) == (spread, share):
                    of.setdefault(each.form, []).append(each)
            for other, own in _BESIDE.items():
                pairs = list(zip(of.get(own, ()), of.get(other, ()), strict=False))
                if pairs:
                    ratios[f"{spread} x, share {share}, over {other}"] = {
                        "per_s": round(statistics.median(a.per_s / b.per_s for a, b in pairs), 2),
                        "p99": round(statistics.median(a.p99_ms / b.p99_ms for a, b in pairs), 2),
                    }
    return ratios


if __name__ == "__main__":
    main()
