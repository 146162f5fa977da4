"""What is called an outlier is one: over many fleets, and over hours of looking at sound ones."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pyserve.admin.api.outliers import outliers
from pyserve.admin.api.sampler import INTERVAL_S, KEPT_EVERY_S
from tests.unit.admin.fleets import Fleet, Kind, fleet, hour

_FLEETS = 400
_HOURS = 3


@pytest.fixture
def chance() -> np.random.Generator:
    """Return chance of a new seed, which a test that fails prints; ``SEED=n`` repeats one."""
    seed = int(os.environ.get("SEED", secrets.randbits(32)))
    print(f"SEED={seed}")
    return np.random.default_rng(seed)


def test_alarms_are_right_and_find_what_matters(chance: np.random.Generator):
    """Of 100 alarms 95 are right; of replicas that are plainly at fault 80 of 100 are found.

    A slow one is plain with three times the time and a hundred calls, a failing one with a fifth of
    as many.
    """
    alarms = {"slow": [0, 0], "fail": [0, 0]}
    plain = {"slow": [0, 0], "fail": [0, 0]}
    for _ in range(_FLEETS):
        drawn = fleet(chance)
        found = outliers(drawn.served(chance))
        for name, each in drawn.replicas.items():
            is_plain = {"slow": each.factor >= 3, "fail": each.failing_share >= 0.2}
            for word, faulty in (("slow", drawn.slow), ("fail", drawn.failing)):
                is_found = word in found.get(name, "")
                _count(alarms[word], is_found, name in faulty)
                _count(plain[word], each.calls >= 100 and is_plain[word], is_found)
    for word, (right, all_of_them) in alarms.items():
        assert right >= 0.95 * all_of_them > 0, f"{right} of {all_of_them} alarms: {word}"
    for word, (found_ones, all_of_them) in plain.items():
        assert found_ones >= 0.8 * all_of_them > 0, f"{found_ones} of {all_of_them} found: {word}"


def test_alarms_are_right_where_each_replica_gets_calls_of_its_own(chance: np.random.Generator):
    """Some get nothing but the calls of a method that takes 300 times as long."""
    right = alarms = 0
    for _ in range(_FLEETS):
        drawn = fleet(chance)
        shares = chance.choice([0.0, 0.1, 0.9, 1.0], len(drawn.replicas))
        affine = replace(
            drawn,
            kind=Kind("bimodal"),
            is_by_method=True,
            replicas={
                name: replace(each, long_share=float(share))
                for (name, each), share in zip(drawn.replicas.items(), shares, strict=True)
            },
        )
        found = {name for name, words in outliers(affine.served(chance)).items() if "slow" in words}
        right += len(found & affine.slow)
        alarms += len(found)
    assert right >= 0.95 * alarms > 0, f"{right} of {alarms} alarms"


def test_what_is_slower_than_an_outlier_on_no_less_evidence_is_one_too(
    chance: np.random.Generator,
):
    """Each of its quantiles is higher, by more than the bounds of the buckets can be off."""
    flagged = 0
    for _ in range(_FLEETS):
        served = fleet(chance).served(chance)
        found = {name for name, words in outliers(served).items() if "slow" in words}
        flagged += len(found)
        for name in served.keys() - found:
            own = served[name]
            for other in found:
                less = served[other]
                assert (
                    own.calls < less.calls
                    or own.calls - own.failed < less.calls - less.failed
                    or not _is_slower(own.times.counts, less.times.counts)
                ), f"{other} of {served} is an outlier, and {name} is not"
    assert flagged


def test_an_hour_of_looking_at_sound_replicas_raises_no_alarm(chance: np.random.Generator):
    """Whatever the looks have of chance, and each replica: so many calls would pass for slow."""
    for sound in _sound_fleets(chance):
        for seen in hour(chance, sound, INTERVAL_S, KEPT_EVERY_S):
            assert {} == outliers(seen), sound


def _sound_fleets(chance: np.random.Generator) -> Iterator[Fleet]:
    """Yield small fleets without a fault, whose replicas get the same kinds of calls."""
    left = _HOURS
    while left:
        drawn = fleet(chance)
        if len(drawn.replicas) <= 8 and not drawn.slow and not drawn.mixed:
            left -= 1
            yield drawn


def _count(counts: list[int], is_counted: bool, is_hit: bool) -> None:
    counts[0] += is_counted and is_hit
    counts[1] += is_counted


def _is_slower(own: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Say whether each share of own calls takes longer by a bucket at least."""
    upto_own = np.cumsum(own) / sum(own)
    upto_others = np.cumsum(others) / sum(others)
    return bool(np.all(upto_own[1:] <= upto_others[:-1]))
