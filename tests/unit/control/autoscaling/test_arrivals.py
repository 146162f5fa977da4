"""Rates of calls: jumps count at once, noise does not, bursts are measured."""

import random

import pytest

from pyserve.control.autoscaling.arrivals import Arrivals

_TICK_S = 0.1


def _fed(rate, seconds: float, *, clump: int = 1, seed: int = 1) -> tuple[Arrivals, float]:
    draw = random.Random(seed)
    arrivals = Arrivals(0.0)
    ticks = round(seconds / _TICK_S)
    for tick in range(ticks):
        now = tick * _TICK_S
        per_clump = rate(now) * _TICK_S / clump
        count = 0
        waited = draw.expovariate(1.0)
        while waited < per_clump:
            count += clump
            waited += draw.expovariate(1.0)
        arrivals.add(count, now)
    return arrivals, ticks * _TICK_S


def test_a_steady_load_is_its_mean_within_chance():
    arrivals, now = _fed(lambda _: 50.0, 120)

    assert 50.0 == pytest.approx(arrivals.rate(now), rel=0.1)
    assert 1.0 == pytest.approx(arrivals.dispersion(now), abs=0.25)


def test_a_jump_counts_after_a_second():
    arrivals, now = _fed(lambda now: 10.0 if now < 60 else 80.0, 61.5)

    assert 45.0 < arrivals.rate(now) < 90.0


def test_callers_that_come_in_clumps_disperse():
    arrivals, now = _fed(lambda _: 50.0, 180, clump=5)

    assert 5.0 == pytest.approx(arrivals.dispersion(now), rel=0.3)


def test_a_steady_growth_is_a_trend_and_a_jump_is_none():
    growing, now = _fed(lambda now: 10 + 4 * now, 60)
    jumped, _ = _fed(lambda now: 10.0 if now < 52 else 250.0, 60)

    assert 4.0 == pytest.approx(growing.growth(now, 40.0), rel=0.5)
    assert 1.0 > jumped.growth(now, 40.0)


def test_chance_is_hardly_ever_a_trend():
    found = []
    for seed in range(20):
        steady, now = _fed(lambda _: 100.0, 60, seed=seed)
        found.append(steady.growth(now, 40.0))

    assert found.count(0.0) >= 19


def test_a_fall_counts_within_twelve_seconds():
    before, now = _fed(lambda now: 400.0 if now < 60 else 50.0, 62)
    after, later = _fed(lambda now: 400.0 if now < 60 else 50.0, 71)

    assert before.rate(now) > 250.0
    assert after.rate(later) < 75.0


def test_silence_is_no_load():
    arrivals, now = _fed(lambda _: 50.0, 20)

    assert 0.0 == arrivals.rate(now + 3600)
    assert 0.0 == Arrivals(5.0).rate(5.0)


def test_ten_seconds_without_a_call_are_no_load_however_bursty_it_was():
    arrivals, now = _fed(lambda now: 400.0 if now % 10 < 1 else 5.0, 120, clump=20)
    assert arrivals.dispersion(now) > 10.0

    assert 0.0 == arrivals.rate(now + 10.5)


def test_rates_are_of_the_calls_of_now_alone():
    arrivals, now = _fed(lambda now: 400.0 if now < 58 else 5.0, 60)
    assert arrivals.rate(now) > 200.0

    arrivals.begin_again(58.0)

    assert 12.0 > arrivals.rate(now) > 1.0
