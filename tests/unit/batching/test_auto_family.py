"""The learnt wait after a change of the mix, against the best fixed window of each phase.

Each run draws other workloads; ``SEED=n`` repeats one. ``python -m benchmarks.batching --family N``
plays more of them, and judges each phase by the margins of `batching_family.py`.
"""

import os
import statistics
import time

import pytest

from benchmarks.batching_family import Player, family, judge
from benchmarks.batching_rules import Step
from benchmarks.batching_workloads import Phase, Workload, draw

SEED = int(os.environ.get("SEED", time.time_ns() % 10**9))
WORKLOADS = 12
CALLS_MAX = 1_000
# A rule that has locked itself out serves a fraction of the calls, or is late by a multiple. Up
# to here a single phase may be off by chance, or by one of the ties between two ways to group
# callers.
GOODPUT_MIN = 0.8
LATENCY_MAX = 1.5
# Over all phases, gains and losses come out near even.
MEAN_GOODPUT_MIN = 0.98
MEAN_LATENCY_MAX = 1.05


def test_no_change_of_the_mix_locks_out_what_is_learnt_next() -> None:
    findings = list(family(SEED, WORKLOADS, CALLS_MAX))
    for finding in findings:
        assert finding.goodput >= GOODPUT_MIN, f"SEED={SEED}: {finding.told()}"
        assert finding.latency <= LATENCY_MAX, f"SEED={SEED}: {finding.told()}"
    goodput = statistics.fmean(finding.goodput for finding in findings)
    latency = statistics.fmean(finding.latency for finding in findings)
    assert goodput >= MEAN_GOODPUT_MIN, f"SEED={SEED}"
    assert latency <= MEAN_LATENCY_MAX, f"SEED={SEED}"


def test_a_seed_gives_the_same_workload_and_the_same_play() -> None:
    assert draw(SEED) == draw(SEED)
    workload = draw(SEED, CALLS_MAX)
    assert Player(workload, "auto", 0).play() == Player(workload, "auto", 0).play()


FAST = Step(0.001, 0.0)
SLOW = Step(0.1, 0.0)


def phase(step: Step, callers: int, deadline_s: float = float("inf")) -> Phase:
    return Phase(
        step,
        callers=callers,
        think_s=0.02 * step.fixed_s,
        deadline_s=deadline_s,
        settle_s=60 * step.fixed_s + 0.2,
        seconds=180 * step.fixed_s + 0.2,
    )


@pytest.mark.parametrize(
    "phases",
    [
        (phase(SLOW, 8), phase(FAST, 1)),
        (phase(SLOW, 3), phase(FAST, 2)),
        (phase(SLOW, 6), phase(FAST, 6, deadline_s=0.02)),
        (phase(FAST, 6), phase(SLOW, 2, deadline_s=1.0), phase(FAST, 3, deadline_s=0.02)),
    ],
    ids=["one caller", "a new size", "deadlines", "there and back"],
)
def test_a_step_a_hundred_times_faster_is_found_out(phases: tuple[Phase, ...]) -> None:
    """Each was once served at a fraction of what any fixed window does, for thousands of steps."""
    workload = Workload(seed=1, size_max=16, executors=1, jitter=0.0, phases=phases)
    for finding in judge(workload):
        assert finding.goodput >= 0.97, finding.told()
        assert finding.latency <= 1.1, finding.told()
