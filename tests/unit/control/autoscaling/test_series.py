"""A level over the last seconds: mean over time, largest, smallest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.control.autoscaling.arrivals import Series


def _series(*points: tuple[float, float], window_s: float = 10.0) -> Series:
    series = Series(window_s)
    for now, level in points:
        series.set(level, now)
    return series


@pytest.mark.parametrize(
    ("function", "now", "expected"),
    [
        ("mean", 10.0, 6.0),  # 4 for eight seconds, 14 for two
        ("mean", 12.0, 8.0),  # the first two are forgotten
        ("mean", 30.0, 14.0),
        ("max", 10.0, 14.0),
        ("min", 10.0, 4.0),
        ("min", 30.0, 14.0),
    ],
)
def test_a_level_counts_for_as_long_as_it_held(function: str, now: float, expected: float):
    series = _series((0.0, 4.0), (8.0, 14.0))

    assert expected == pytest.approx(series.aggregate(function, now))


def test_what_was_before_the_first_level_does_not_count():
    assert 6.0 == _series((100.0, 6.0)).aggregate("mean", 101.0)
    assert 0.0 == Series(5.0).aggregate("max", 3.0)


@given(st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 50)), min_size=1, max_size=400))
def test_it_stays_between_smallest_and_largest_in_bounded_room(steps: list[tuple[float, float]]):
    series, now = Series(2.0), 0.0
    for wait_s, level in steps:
        now += wait_s
        series.set(level, now)
        mean = series.aggregate("mean", now)
        slack = 1e-6 * (1 + mean)
        low, high = series.aggregate("min", now), series.aggregate("max", now)
        assert low - slack <= mean <= high + slack

    assert 210 > len(series._parts)
