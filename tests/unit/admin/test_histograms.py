"""Differences, sums and quantiles of times that are known by bounds."""

import pytest

from pyserve.admin.histograms import Histogram, total
from tests.unit.admin.builders import BOUNDS, times


@pytest.mark.parametrize(
    ("share", "expected"), [(0.01, 0.00004), (0.5, 0.0055), (0.75, 0.01), (0.99, 0.964)]
)
def test_a_quantile_lies_on_a_line_through_its_bucket(share: float, expected: float):
    found = times(*[0.0005] * 25, *[0.005] * 50, *[0.5] * 25)
    assert pytest.approx(expected) == found.quantile(share)


def test_above_the_last_bound_nothing_is_known_but_the_bound():
    assert 1.0 == times(5.0, 6.0).quantile(0.5)


def test_nothing_has_no_quantile_and_no_mean():
    assert (None, None) == (times().quantile(0.99), times().mean_s)
    assert (None, None) == (Histogram().quantile(0.99), Histogram().mean_s)


def test_what_came_since_is_a_difference():
    assert times(0.5) == times(0.005, 0.5).since(times(0.005))


def test_counts_that_began_anew_are_all_new():
    fresh = times(0.005)
    assert fresh == fresh.since(times(0.005, 0.5))
    assert fresh == fresh.since(times(0.5))
    assert fresh == fresh.since(Histogram.of((1.0,), (0, 0), 0.0))


def test_sums_need_the_same_bounds():
    assert times(0.005, 0.5) == total([times(0.005), Histogram(), times(0.5)])
    with pytest.raises(ValueError, match="bounds"):
        times(0.5).plus(Histogram.of((1.0,), (1, 0), 0.5))


def test_there_is_one_count_more_than_bounds():
    with pytest.raises(ValueError, match="5 counts"):
        Histogram.of(BOUNDS, (1, 2), 0.0)
