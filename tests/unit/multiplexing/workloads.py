"""Requests for models of one replica, drawn at random, and what a cache does with them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pyserve.multiplexing.cache import CacheOptions, CacheStats, ModelCache

WINDOW_S = 900.0
"""The time that the alert looks at."""


@dataclass(frozen=True)
class Workload:
    """The models that a replica is asked for, and its room.

    Attributes:
        options: The room.
        sizes: Bytes of each model.
        requests: When which model is asked for, over several windows.
    """

    options: CacheOptions
    sizes: dict[str, int]
    requests: list[tuple[float, str]]

    def doubled(self) -> CacheOptions:
        """Return the room that the warning advises."""
        limit_bytes = self.options.max_bytes
        return replace(
            self.options,
            max_num_models_per_replica=2 * self.options.max_num_models_per_replica,
            max_bytes=None if limit_bytes is None else 2 * limit_bytes,
        )


def workload(chance: random.Random) -> Workload:
    """Draw one: Zipf's popularity or turns, one phase or several, counted in models or bytes."""
    room = chance.randint(1, 16)
    count = max(2, round(room * 2 ** chance.uniform(-1, 5)))
    names = [f"m{number}" for number in range(count)]
    sizes = {name: chance.randint(1, 20) for name in names}
    options = CacheOptions(
        max_num_models_per_replica=room,
        max_bytes=20 * room if chance.random() < 0.3 else None,
        policy=chance.choice(["lru", "gdsf"]),
    )
    zipf = list(accumulate((rank + 1) ** -chance.uniform(0, 2) for rank in range(count)))
    rate = 2 ** chance.uniform(-6, 2)
    phase_s = chance.choice([WINDOW_S / 10, WINDOW_S, 100 * WINDOW_S])
    is_in_turns = chance.random() < 0.2
    now = 0.0
    requests: list[tuple[float, str]] = []
    while now < 3 * WINDOW_S:
        now += chance.expovariate(rate)
        if requests and int(now / phase_s) > int(requests[-1][0] / phase_s):
            chance.shuffle(names)
        name = (
            names[len(requests) % count]
            if is_in_turns
            else chance.choices(names, cum_weights=zipf)[0]
        )
        requests.append((now, name))
    return Workload(options, sizes, requests)


def windows(options: CacheOptions, work: Workload) -> list[CacheStats]:
    """Return what a cache counts in each window."""
    cache: ModelCache[None] = ModelCache(options)
    seen, end_s = [cache.stats()], WINDOW_S
    for now, name in work.requests:
        if now > end_s:
            seen.append(cache.stats())
            end_s += WINDOW_S
        if cache.use(name) is None:
            cache.request(name, now)
            assert [name] == [start.model_id for start in cache.start_loads()]
            cache.loaded(name, None, size_bytes=work.sizes[name], load_s=1.0, now=now)
    return [
        CacheStats(loads=now.loads - then.loads, reloads=now.reloads - then.reloads)
        for then, now in pairwise(seen)
    ]
