"""A hundred models in slots for a quarter of them: loads per request and latency.

The shipping loader and cache, with both policies, against a model of the rule of Ray Serve's
replica: least recently used, counted in models, all loads behind one lock. In virtual time, and
once in real time with loads that sleep. Everybody gets the same requests.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import contextvars
import itertools
import json
import random
import statistics
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks.machine import stamp
from benchmarks.virtual_time import run_virtual
from pyserve.multiplexing.cache import CacheOptions
from pyserve.multiplexing.directory import Directory
from pyserve.multiplexing.loader import Loader
from pyserve.request import CURRENT, Request

RESULTS = Path(__file__).parent / "results" / "multiplexing.json"
REFERENCE = "count-lru-serial"
SYSTEMS = (REFERENCE, "lru", "gdsf")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The load on one replica, or on several.

    Attributes:
        rate: Requests a second, Poisson.
        models: How many ids; their popularity is Zipf's with exponent ``zipf``.
        slots: Models that one replica keeps.
        replicas: With more than one, a request goes to a replica that has its model, else to
            one with the fewest models.
        load_s: Shortest and longest load; each model's own is drawn between them, evenly in
            the logarithm.
        run_s: How long a request uses its model.
        requests: How many are measured, after a fifth as many that are not.
    """

    name: str
    rate: float
    models: int = 100
    slots: int = 25
    replicas: int = 1
    zipf: float = 1.0
    load_s: tuple[float, float] = (0.05, 0.05)
    run_s: float = 0.005
    requests: int = 10_000
    seed: int = 1


SCENARIOS = (
    Scenario(name="equal_loads_20_per_s", rate=20.0),
    Scenario(name="equal_loads_50_per_s", rate=50.0),
    Scenario(name="equal_loads_100_per_s", rate=100.0),
    Scenario(name="mixed_loads_5_per_s", rate=5.0, load_s=(0.01, 0.5)),
    Scenario(name="20_replicas_of_5", rate=400.0, slots=5, replicas=20),
)
LIVE = Scenario(name="live_equal_loads_50_per_s", rate=50.0, requests=750)


@dataclass(frozen=True)
class Arrival:
    """One request: when it comes, and for which model."""

    at_s: float
    model_id: str


@dataclass(frozen=True)
class Outcome:
    """What one system made of a scenario; latencies in milliseconds."""

    loads_per_request: float
    mean_ms: float
    p50_ms: float
    p99_ms: float


class Replica(Protocol):
    """What gives out models."""

    @property
    def loads(self) -> int: ...

    async def get(self, model_id: str) -> object: ...

    def model_ids(self) -> list[str]: ...


Load = Callable[[str], Awaitable[object]]


class CountLruSerial:
    """The rule of Ray Serve 2.60's replica (parity 3.3), in our own words.

    A hit takes no lock. A miss takes the one lock of the replica, looks again, evicts the least
    recently used model if all slots are taken, and loads. Nothing is pinned.
    """

    def __init__(self, load: Load, slots: int) -> None:
        self.loads = 0
        self._load = load
        self._slots = slots
        self._lock = asyncio.Lock()
        self._models: OrderedDict[str, object] = OrderedDict()
        self._loading: set[str] = set()

    async def get(self, model_id: str) -> object:
        if model_id not in self._models:
            self._loading.add(model_id)
            async with self._lock:
                if model_id not in self._models:
                    if len(self._models) >= self._slots:
                        self._models.popitem(last=False)
                    self.loads += 1
                    self._models[model_id] = await self._load(model_id)
                self._loading.discard(model_id)
        self._models.move_to_end(model_id)
        return self._models[model_id]

    def model_ids(self) -> list[str]:
        return [*self._models, *self._loading]


class Shipped:
    """The loader and the cache of the package."""

    def __init__(self, load: Load, slots: int, policy: str) -> None:
        self._directory = Directory()
        self._loader: Loader[object] = Loader(
            load,
            label="get_model",
            options=CacheOptions(max_num_models_per_replica=slots, policy=policy),
            size_of=lambda _model: 1,
            directory=self._directory,
            loop=asyncio.get_running_loop(),
        )

    @property
    def loads(self) -> int:
        return self._loader.stats().loads

    async def get(self, model_id: str) -> object:
        return await self._loader.get(model_id)

    def model_ids(self) -> list[str]:
        return self._directory.models()


def make_replica(system: str, load: Load, slots: int) -> Replica:
    """Return an empty replica of one of ``SYSTEMS``, in a running loop."""
    return CountLruSerial(load, slots) if system == REFERENCE else Shipped(load, slots, system)


def draw(scenario: Scenario) -> list[Arrival]:
    """Return the requests of a scenario, the same ones every time."""
    generator = random.Random(scenario.seed)
    weights = [1 / rank**scenario.zipf for rank in range(1, scenario.models + 1)]
    sums = list(itertools.accumulate(weights))
    now, arrivals = 0.0, []
    for _ in range(scenario.requests * 6 // 5):
        now += generator.expovariate(scenario.rate)
        rank = bisect.bisect(sums, generator.random() * sums[-1])
        arrivals.append(Arrival(now, f"m{rank}"))
    return arrivals


def load_times(scenario: Scenario) -> dict[str, float]:
    """Return how long each model takes to load; popularity and load time are independent."""
    generator = random.Random(scenario.seed + 1)
    low, high = scenario.load_s
    return {f"m{rank}": low * (high / low) ** generator.random() for rank in range(scenario.models)}


async def play(system: str, scenario: Scenario) -> Outcome:
    """Send a scenario's requests to one system, by the running loop's clock."""
    loop = asyncio.get_running_loop()
    times = load_times(scenario)

    async def load(model_id: str) -> object:
        await asyncio.sleep(times[model_id])
        return model_id

    replicas = [make_replica(system, load, scenario.slots) for _ in range(scenario.replicas)]
    latencies_s: list[float] = []

    async def answer(arrival: Arrival, request: Request) -> None:
        try:
            await _route(replicas, arrival.model_id).get(arrival.model_id)
            await asyncio.sleep(scenario.run_s)
        finally:
            request.end()
        latencies_s.append(loop.time() - started_at - arrival.at_s)

    arrivals = draw(scenario)
    warmup = len(arrivals) - scenario.requests
    loads_before = 0
    started_at = loop.time()
    async with asyncio.TaskGroup() as group:
        for index, arrival in enumerate(arrivals):
            await asyncio.sleep(started_at + arrival.at_s - loop.time())
            if index == warmup:
                loads_before = sum(replica.loads for replica in replicas)
                latencies_s.clear()
            _start(group, answer, arrival)
    loads = sum(replica.loads for replica in replicas) - loads_before
    return summary(latencies_s, loads_per_request=loads / scenario.requests)


def _start(
    group: asyncio.TaskGroup,
    answer: Callable[[Arrival, Request], Coroutine[Any, Any, None]],
    arrival: Arrival,
) -> None:
    request = Request(request_id="r", multiplexed_model_id=arrival.model_id)
    context = contextvars.copy_context()
    context.run(CURRENT.set, request)
    group.create_task(answer(arrival, request), context=context)


def _route(replicas: list[Replica], model_id: str) -> Replica:
    if len(replicas) == 1:
        return replicas[0]
    ids = [replica.model_ids() for replica in replicas]
    having = [replica for replica, found in zip(replicas, ids, strict=True) if model_id in found]
    return having[0] if having else replicas[min(range(len(ids)), key=lambda i: len(ids[i]))]


def summary(latencies_s: list[float], *, loads_per_request: float) -> Outcome:
    """Return the figures of a run."""
    cuts = statistics.quantiles(latencies_s, n=100, method="inclusive")
    return Outcome(
        loads_per_request=round(loads_per_request, 4),
        mean_ms=round(statistics.fmean(latencies_s) * 1e3, 2),
        p50_ms=round(cuts[49] * 1e3, 2),
        p99_ms=round(cuts[98] * 1e3, 2),
    )


def compare(scenario: Scenario, *, virtual: bool) -> dict[str, Outcome]:
    """Run every system on one scenario."""
    run = run_virtual if virtual else asyncio.run
    return {system: run(play(system, scenario)) for system in SYSTEMS}


def report(outcomes: Mapping[str, Mapping[str, Outcome]]) -> str:
    """Return a table for people."""
    lines = [f"{'scenario':28} {'system':18} {'loads/req':>9} {'mean ms':>9} {'p99 ms':>9}"]
    for name, systems in outcomes.items():
        for system, outcome in systems.items():
            lines.append(
                f"{name:28} {system:18} {outcome.loads_per_request:9.4f} "
                f"{outcome.mean_ms:9.1f} {outcome.p99_ms:9.1f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write ``results/multiplexing.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, no file")
    quick = parser.parse_args().quick
    outcomes = {}
    for scenario in SCENARIOS:
        count = scenario.requests // 10 if quick else scenario.requests
        outcomes[scenario.name] = compare(replace(scenario, requests=count), virtual=True)
    if not quick:
        outcomes[LIVE.name] = compare(LIVE, virtual=False)
    print(report(outcomes))
    if not quick:
        written = {
            "machine": stamp(),
            "scenarios": [asdict(scenario) for scenario in (*SCENARIOS, LIVE)],
            "outcomes": {
                name: {system: asdict(outcome) for system, outcome in systems.items()}
                for name, systems in outcomes.items()
            },
        }
        RESULTS.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
