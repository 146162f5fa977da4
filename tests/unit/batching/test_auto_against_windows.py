"""The learnt wait against every fixed window and the seeds' rule, on the same Poisson arrivals.

A fast part of ``python -m benchmarks.batching``: the state machine that ships, in virtual time.
"""

from itertools import pairwise

import pytest

from benchmarks import batching
from benchmarks.batching import FIXED, LINEAR, SEEDS_RATIO_MIN, SIZE_MAX, VIRTUAL_MARGIN, Cell
from benchmarks.batching_rules import Step, play
from pyserve.batching import BatchOptions

CAPACITY = LINEAR.capacity(SIZE_MAX)
COUNT = 2_500


@pytest.mark.parametrize(
    "cell",
    [
        Cell(FIXED, 20),
        Cell(FIXED, 100),
        Cell(FIXED, 300),
        Cell(LINEAR, 20),
        Cell(LINEAR, CAPACITY * 0.3),
        Cell(LINEAR, CAPACITY * 0.9),
        Cell(LINEAR, CAPACITY * 1.1),
    ],
    ids=lambda cell: cell.name,
)
def test_auto_is_never_two_percent_worse_than_the_best_other_rule(cell: Cell) -> None:
    verdict = batching.judge(batching.virtual(cell, COUNT))
    assert verdict.worse <= VIRTUAL_MARGIN, verdict


def test_the_seeds_rule_answers_fewer_requests() -> None:
    """Batches that are closed before the executor is free stay small."""
    outcomes = batching.virtual(Cell(FIXED, 100), COUNT)
    seeds = outcomes["frozen 10 ms"].answered_per_s
    for ours in ("auto", "defaults"):
        assert outcomes[ours].answered_per_s >= SEEDS_RATIO_MIN * seeds


def test_calls_that_come_alone_are_as_fast_as_without_batches() -> None:
    outcomes = batching.virtual(Cell(LINEAR, 20), COUNT)
    assert outcomes["auto"].p50_s <= (1 + VIRTUAL_MARGIN) * outcomes["unbatched"].p50_s


@pytest.mark.parametrize("step", [FIXED, LINEAR], ids=["fixed", "linear"])
def test_auto_gathers_bursts_and_callers_who_come_back(step: Step) -> None:
    """Leaving at once would split them into two batches each time."""
    loop = batching.closed(step, 8, 0.02 * step.fixed_s, COUNT)
    assert loop["auto"].answered_per_s >= 1.3 * loop["window 0 ms"].answered_per_s
    bursts = batching.bursts(step, 0.2 * 8 / step.duration_s(8), COUNT)
    assert bursts["auto"].mean_s <= 0.9 * bursts["window 0 ms"].mean_s


@pytest.mark.parity("S-26")
def test_larger_batches_spread_the_fixed_cost() -> None:
    """Requests/s of a saturated method over its batch size: the curve of the step's cost."""
    served = []
    for size in (1, 2, 4, 8, 16, 32):
        options = BatchOptions(max_batch_size=size, batch_wait_timeout_s=0.0)
        outcome = play(options, [0.0] * 2 * size, LINEAR, think=lambda: 0.0, count=100 * size)
        assert outcome.mean_batch == pytest.approx(size, rel=0.05)
        assert outcome.answered_per_s == pytest.approx(LINEAR.capacity(size), rel=0.05)
        served.append(outcome.answered_per_s)
    assert all(larger > 1.3 * smaller for smaller, larger in pairwise(served))
