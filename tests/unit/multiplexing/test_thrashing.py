"""The warning of thrashing models is right: the room that it advises would save what it counts."""

from __future__ import annotations

import os
import random
import re
import secrets
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import pytest

from pyserve.multiplexing.cache import CacheStats
from tests.unit.multiplexing.workloads import WINDOW_S, Workload, windows, workload

_ALERTS = Path(__file__).parents[3] / "deploy" / "alerts.yml"
_WORKLOADS = 30


@pytest.fixture
def chance() -> random.Random:
    """Return chance of a new seed, which a test that fails prints; ``SEED=n`` repeats one."""
    seed = int(os.environ.get("SEED", secrets.randbits(32)))
    print(f"SEED={seed}")
    return random.Random(seed)


def is_warned_of(window: CacheStats) -> bool:
    """Say what the rule of the shipped alert says of one window."""
    rule = _ALERTS.read_text().partition("alert: PyserveModelsThrash")[2].partition("labels:")[0]
    share, least = (float(each) for each in re.findall(r"> ([0-9.]+)", rule))
    return window.reloads > max(least, share * window.loads)


def test_a_warning_counts_what_twice_the_room_would_save(chance: random.Random):
    """At least nine of ten counted loads, in at least 95 of 100 windows that are warned of."""
    right = []
    for _ in range(_WORKLOADS):
        work = workload(chance)
        for here, larger in zip(
            windows(work.options, work), windows(work.doubled(), work), strict=True
        ):
            if is_warned_of(here):
                right.append(here.loads - larger.loads >= 0.9 * here.reloads)
    assert len(right) >= 10, "the family has to have caches that thrash"
    assert sum(right) >= 0.95 * len(right), f"{sum(right)} of {len(right)} warnings are right"


def test_least_recently_used_models_are_counted_to_the_last_load(chance: random.Random):
    """Against a cache of a few lines: more room never loads more, so each count is exact."""
    compared = 0
    for _ in range(_WORKLOADS):
        work = workload(chance)
        if work.options.policy == "lru" and work.options.max_bytes is None:
            room = work.options.max_num_models_per_replica
            here, larger = loads(work, room), loads(work, 2 * room)
            found = windows(work.options, work)
            assert here == [each.loads for each in found]
            assert [a - b for a, b in zip(here, larger, strict=True)] == [
                each.reloads for each in found
            ]
            compared += 1
    assert compared, "the family has to have such caches"


def loads(work: Workload, room: int) -> list[int]:
    """Count the loads of a cache of so many places in each window."""
    places: OrderedDict[str, None] = OrderedDict()
    count, end_s, seen = 0, WINDOW_S, [0]
    for now, name in work.requests:
        if now > end_s:
            seen.append(count)
            end_s += WINDOW_S
        if name not in places:
            count += 1
            if len(places) == room:
                places.popitem(last=False)
        places[name] = None
        places.move_to_end(name)
    return [after - before for before, after in pairwise(seen)]
