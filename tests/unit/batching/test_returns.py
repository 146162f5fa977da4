"""Callers who come back: when the next batch waits for them."""

import random
from itertools import pairwise

import pytest

from pyserve.batching.auto import Returns

KEPT = 16  # batches that count


def learnt(think_s: list[float], *, rounds: int = KEPT + 1, waiting: int = 0) -> Returns:
    """After each of some batches, one caller comes back after each of the times."""
    returns = Returns()
    for turn in range(rounds):
        now = 100.0 * turn
        returns.on_answered(len(think_s), waiting, now)
        if turn < rounds - 1:  # The last batch has just been answered.
            for after_s in sorted(think_s):
                returns.on_arrival(now + after_s)
    return returns


def wait_s(returns: Returns, count: int, fixed_s: float, count_max: float = 100) -> float:
    at = returns.until(count, fixed_s, 0.0, count_max)
    return at - 100.0 * KEPT


def test_callers_who_return_soon_are_waited_for_until_all_are_back() -> None:
    returns = learnt([0.01, 0.02, 0.03, 0.04])
    assert wait_s(returns, 1, fixed_s=1.0) == pytest.approx(0.04)
    assert wait_s(returns, 4, fixed_s=1.0) == 0.0


def test_callers_who_think_for_longer_than_a_step_are_not_waited_for() -> None:
    returns = learnt([1.5, 2.0, 2.5, 3.0], waiting=4)
    assert wait_s(returns, 4, fixed_s=1.0) == 0.0


def test_those_who_are_quick_are_waited_for_and_the_slow_one_is_not() -> None:
    returns = learnt([0.01, 0.02, 0.03, 5.0])
    assert wait_s(returns, 1, fixed_s=1.0) == pytest.approx(0.03)


def test_two_groups_are_brought_together() -> None:
    """Half of the callers wait while the others are served: one step for both is quicker."""
    returns = learnt([0.1] * 4, waiting=4)
    assert wait_s(returns, 4, fixed_s=1.0) == pytest.approx(0.1)


def test_nobody_is_waited_for_who_would_not_fit() -> None:
    returns = learnt([0.1] * 4, waiting=4)
    assert wait_s(returns, 4, fixed_s=1.0, count_max=4) == 0.0


def test_a_step_whose_time_grows_with_each_call_is_not_held_up() -> None:
    """Without a fixed part, a larger batch saves nothing."""
    returns = learnt([0.1] * 4, waiting=4)
    assert returns.until(4, 0.0, 1.0, 100) == 100.0 * KEPT


def test_few_batches_say_nothing() -> None:
    returns = learnt([0.01] * 4, rounds=KEPT)
    assert returns.until(1, 1.0, 0.0, 100) <= 100.0 * (KEPT - 1)


def test_after_another_sixteen_batches_the_old_returns_are_forgotten() -> None:
    returns = learnt([0.01] * 4)
    for turn in range(KEPT + 1):
        returns.on_answered(4, 4, 1e6 + 100.0 * turn)
        if turn < KEPT:
            for after_s in (3.0, 4.0, 5.0, 6.0):
                returns.on_arrival(1e6 + 100.0 * turn + after_s)
    assert returns.until(4, 1.0, 0.0, 100) == 1e6 + 100.0 * KEPT


def test_poisson_arrivals_are_no_returns() -> None:
    """As many come in a step as were answered, but at any time: hardly a batch waits."""
    draw = random.Random(1)
    returns, waits, batches = Returns(), 0, 400
    steps = [sorted(draw.random() for _ in range(poisson(draw, 8.0))) for _ in range(batches)]
    for turn, ((answered, waiting), coming) in enumerate(
        zip(pairwise(steps), steps[2:], strict=False)
    ):
        returns.on_answered(len(answered), len(waiting), float(turn))
        waits += returns.until(len(waiting), 1.0, 0.0, 100) > turn
        for after_s in coming:
            returns.on_arrival(turn + after_s)
    assert waits <= 0.02 * batches


def poisson(draw: random.Random, mean: float) -> int:
    count, passed = 0, draw.expovariate(mean)
    while passed < 1.0:
        count, passed = count + 1, passed + draw.expovariate(mean)
    return count
