"""How long work waits; virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.pace import Pace


def pace() -> Pace:
    return Pace(0.25, free_s=0.02, wait_max_s=0.1)


def test_little_work_never_waits():
    work, now = pace(), 100.0
    for _ in range(1000):
        assert 0 == work.wait_s(now)
        work.spend(0.001, now)
        now += 0.01


def test_much_work_waits_until_it_is_no_more_than_its_share():
    work = pace()
    work.spend(0.03, 100.0)
    assert pytest.approx(0.04) == work.wait_s(100.0)
    assert pytest.approx(0.01) == work.wait_s(100.03)
    assert 0 == work.wait_s(100.04)


def test_one_that_took_long_delays_the_next_one_no_more_than_may_be():
    work = pace()
    work.spend(5.0, 100.0)
    assert pytest.approx(0.1) == work.wait_s(100.0)


@given(st.lists(st.floats(0, 0.02), min_size=100, max_size=300))
def test_work_that_always_waits_its_turn_takes_its_share(costs):
    work, now, spent = pace(), 100.0, 0.0
    for cost in costs:
        now += work.wait_s(now) + cost
        work.spend(cost, now)
        spent += cost
    # The free seconds, and the cost of the last piece of work.
    assert spent <= 0.25 * (now - 100.0) + 0.02 + 0.02
