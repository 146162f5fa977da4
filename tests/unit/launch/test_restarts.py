"""When a process that has died is started again."""

from __future__ import annotations

import pytest

from pyserve.launch.process import Restarts


@pytest.mark.parametrize(
    ("lives_s", "delays_s"),
    [
        ([3600.0], [0]),
        ([0.1] * 8, [0, 1, 2, 4, 8, 16, 30, 30]),
        # A minute of life is enough to start from the beginning.
        ([1.0, 1.0, 1.0, 60.0, 1.0], [0, 1, 2, 0, 1]),
        ([1.0, 59.9, 59.9], [0, 1, 2]),
    ],
)
def test_first_death_costs_nothing_and_further_ones_ever_more(
    lives_s: list[float], delays_s: list[float]
) -> None:
    restarts = Restarts()

    assert delays_s == [restarts.on_death(lived_s) for lived_s in lives_s]


def test_long_row_of_deaths_keeps_the_longest_delay() -> None:
    restarts = Restarts()

    assert 30.0 == [restarts.on_death(0.0) for _ in range(5000)][-1]
