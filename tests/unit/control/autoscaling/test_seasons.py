"""Loads that come again: their period is found, and what it says of the next minutes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from pyserve.control.autoscaling.arrivals import SeasonalCounts

_TICK_S = 1.0
_AHEAD_S = 60.0
_SERVICE_S = 0.1


def fed(rate: Callable[[float], float], seconds: float, *, seed: int = 1) -> SeasonalCounts:
    """Count calls by chance at that rate, looking ahead as a policy does."""
    draw, seasons = random.Random(seed), SeasonalCounts(0.0)
    for tick in range(round(seconds / _TICK_S)):
        now = tick * _TICK_S
        mean = rate(now) * _TICK_S
        seasons.add(max(round(draw.gauss(mean, math.sqrt(mean))), 0), now)
        seasons.ahead(now, _AHEAD_S, _SERVICE_S)
    return seasons


def saw(now: float) -> float:
    return 60 + 400 * (now % 240) / 240


def cron(now: float) -> float:
    return 400.0 if now % 300 >= 240 else 50.0


def test_before_a_period_was_there_twice_nothing_is_known() -> None:
    assert fed(saw, 440).ahead(440, _AHEAD_S, _SERVICE_S) is None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("rate", "at", "expected"),
    [
        # In a rise: what it will have risen to.
        (saw, 4 * 240 + 100, saw(160)),
        # At the end of a tooth the top counts, and right after it the foot of the next one.
        (saw, 5 * 240 - 30, saw(239)),
        (saw, 5 * 240 + 5, saw(65)),
        # A job that comes every five minutes is known a minute before, and gone a minute after.
        (cron, 4 * 300 + 190, 400.0),
        (cron, 4 * 300 + 120, 50.0),
    ],
)
def test_what_a_period_says_of_the_next_minute(
    rate: Callable[[float], float], at: float, expected: float, seed: int
) -> None:
    found = fed(rate, at, seed=seed).ahead(at, _AHEAD_S, _SERVICE_S)

    assert found is not None
    assert found.rate == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "rate",
    [
        lambda now: 200.0,
        lambda now: 3.0,
        lambda now: 60.0 if now < 700 else 480.0,
        lambda now: 480.0 if 600 <= now < 720 else 60.0,
        lambda now: 60 + now / 3,
        # A day: no period of it has been there twice.
        lambda now: 150 - 130 * math.cos(2 * math.pi * now / 2400),
    ],
    ids=["steady", "a few", "step", "spike", "ramp", "day"],
)
def test_a_load_without_a_period_has_none(rate: Callable[[float], float], seed: int) -> None:
    draw, seasons = random.Random(seed), SeasonalCounts(0.0)
    for tick in range(1500):
        now = float(tick)
        mean = rate(now)
        seasons.add(max(round(draw.gauss(mean, math.sqrt(mean))), 0), now)
        assert seasons.ahead(now, _AHEAD_S, _SERVICE_S) is None


def test_a_period_that_ends_is_forgotten() -> None:
    seasons = fed(lambda now: saw(now) if now < 960 else 60.0, 960 + 240)

    assert seasons.ahead(1200, _AHEAD_S, _SERVICE_S) is None


def test_a_job_that_stays_away_is_not_expected_any_more() -> None:
    """After three bins; no other period, of which less is missing, takes its place."""
    seasons = fed(cron, 4 * 300)
    draw = random.Random(2)
    expected = 0
    for tick in range(4 * 300, 12 * 300):
        now = float(tick)
        seasons.add(max(round(draw.gauss(50.0, math.sqrt(50.0))), 0), now)
        found = seasons.ahead(now, _AHEAD_S, _SERVICE_S)
        expected += found is not None and found.rate > 200.0

    assert expected <= 60 + 4 * 5, "a minute before, until it was missing for three bins"


def test_a_load_is_of_the_calls_that_come_then() -> None:
    """Many short calls are foreseen while few long ones come."""
    draw, seasons = random.Random(1), SeasonalCounts(0.0)
    for tick in range(4 * 300 + 190):
        now = float(tick)
        rate, service_s = (400.0, 0.005) if now % 300 >= 240 else (2.0, 10.0)
        count = max(round(draw.gauss(rate, math.sqrt(rate))), 0)
        seasons.add(count, now)
        seasons.add_work(count * service_s, count, now)

    found = seasons.ahead(now, _AHEAD_S, 10.0)

    assert found is not None
    assert found.load < 40.0, "not 400 calls per second of 10 s each"


def test_silence_is_no_period() -> None:
    assert SeasonalCounts(0.0).ahead(0.0, _AHEAD_S, _SERVICE_S) is None
    assert fed(saw, 960).ahead(960 + 7200, _AHEAD_S, _SERVICE_S) is None
