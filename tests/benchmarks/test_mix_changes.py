"""How ``make bench NAME=mixes`` draws, plays, counts and judges; the loops in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
from collections.abc import Iterator
from dataclasses import replace

import pytest

import pyserve
from benchmarks.mix_changes.__main__ import Bench
from benchmarks.mix_changes.cases import Case, Choice, Door, Phase, Shape, Style, Work, reported
from benchmarks.mix_changes.drawn import CALLERS_MAX, LOAD, RATE_MAX, SECONDS, capacity, drawn
from benchmarks.mix_changes.judging import Attempt, Figures, figures, is_met, is_open
from benchmarks.mix_changes.load import PATIENCE_S, Play, play
from benchmarks.virtual_time import run_virtual

TEN = Work("constant", 10, 10)
EXPONENTIAL = Work("exponential", 20, 60, "range")


def case(*phases: Phase, style: Style = "awaits", door: Door = "http") -> Case:
    return Case("a case", style, 1, 8, phases, door, permits=2)


def played(one: Case, *, late_s: float = 0.0, at_once: int = 1_000, seed: int = 1) -> Play:
    """Play a case against replicas that are late, or work on so many calls at once."""

    async def main() -> Play:
        places = asyncio.Semaphore(at_once)

        async def call(ms: float) -> None:
            async with places:
                await asyncio.sleep(ms / 1e3 + late_s)

        return await play(one, call, seed)

    return run_virtual(main())


# --- what is drawn ----------------------------------------------------------------------------


def test_a_seed_draws_the_same_cases_every_time_and_another_seed_draws_others():
    assert drawn(7, 20) == drawn(7, 20)
    assert drawn(7, 5) == drawn(7, 20)[:5]
    assert drawn(7, 20) != drawn(8, 20)


def test_every_style_door_and_loop_is_drawn():
    cases = drawn(1, 200)
    phases = [phase for each in cases for phase in each.phases]
    assert {"awaits", "blocks", "threads", "bounded", "batches"} == {each.style for each in cases}
    assert {"http", "grpc", "handle"} == {each.door for each in cases}
    assert {1, 2, 3, 4} == {each.replicas for each in cases}
    assert {"constant", "exponential", "heavy"} == {each.work.shape for each in phases}
    assert {True, False} == {bool(each.rate) for each in phases}


def test_what_is_drawn_stays_within_what_the_generator_and_the_replicas_can_do():
    for each in drawn(3, 300):
        assert 2 <= len(each.phases) <= 3
        for phase in each.phases:
            assert SECONDS[0] <= phase.seconds <= SECONDS[1]
            assert bool(phase.rate) is not bool(phase.callers)
            if phase.rate:
                assert phase.rate <= RATE_MAX
                # Rates are rounded to a tenth.
                assert phase.rate <= LOAD[1] * capacity(each, phase.work) + 0.1
            else:
                assert 1 <= phase.callers <= CALLERS_MAX
                is_alone = phase.callers == 1
                assert is_alone or phase.callers / phase.work.mean_s <= RATE_MAX


@pytest.mark.parametrize("shape", ["constant", "exponential", "heavy"])
@pytest.mark.parametrize("choice", ["either", "turns", "range"])
def test_durations_have_the_mean_of_their_work(shape: Shape, choice: Choice):
    """Heavy-tailed ones lose a fortieth to the bound on the longest."""
    work = Work(shape, 20, 60, choice)
    durations = list(itertools.islice(work.draws(random.Random(1)), 50_000))
    assert 0.04 == work.mean_s
    assert 40 == pytest.approx(statistics.fmean(durations), rel=0.04)


def test_durations_in_turns_take_turns():
    durations = Work("constant", 3, 300, "turns").draws(random.Random(1))
    assert [3, 300, 3, 300] == list(itertools.islice(durations, 4))


def test_reported_cases_have_names_of_their_own():
    names = [each.name for each in (*reported(), *drawn(1, 20))]
    assert len(names) == len(set(names))


# --- what is played and counted ---------------------------------------------------------------


def test_both_policies_get_the_same_arrivals_and_durations_however_late_they_answer():
    one = case(Phase(EXPONENTIAL, 3.0, rate=100), Phase(TEN, 3.0, rate=50))

    def calls(of: Play) -> list[list[tuple[float, float]]]:
        return [
            [(round(each.due_s - phase.begin_s, 6), each.work_s) for each in phase.answers]
            for phase in of.phases
        ]

    quick, slow = calls(played(one)), calls(played(one, late_s=0.4, at_once=3))
    assert quick == slow
    assert quick != calls(played(one, seed=2))
    assert [300, 150] == pytest.approx([len(each) for each in quick], rel=0.3)


def test_a_closed_loop_counts_the_parts_of_its_calls_at_both_ends():
    """Twelve equal calls end together; whole ones would be counted in steps of twelve."""
    one = case(Phase(Work("constant", 300, 300), 3.0, callers=12))
    (made,) = figures(one, played(one))
    assert 40 == pytest.approx(made.per_s, rel=0.01)
    assert 300 == pytest.approx(made.mean_ms, rel=0.01)


def test_a_prelude_ends_with_its_calls_and_is_not_judged():
    prelude = Phase(TEN, 5.0, callers=1, calls=60)
    one = case(prelude, Phase(TEN, 1.0, callers=2))
    first, second = played(one).phases
    assert 60 == len(first.answers)
    assert 0.6 == pytest.approx(second.begin_s - first.begin_s, rel=0.05)
    assert [False, True] == [each.is_judged for each in one.phases]


@pytest.mark.parametrize(("late_s", "share"), [(PATIENCE_S - 0.01, 1.0), (PATIENCE_S + 0.01, 0.0)])
def test_answers_of_an_open_loop_count_while_they_are_in_time(late_s: float, share: float):
    one = case(Phase(TEN, 4.0, rate=100))
    play_made = played(one, late_s=late_s)
    (made,) = figures(one, play_made)
    assert share * made.calls / 3.8 == pytest.approx(made.per_s, abs=0.01)


def test_replicas_that_answer_a_tenth_too_little_lose_more_than_the_bar_allows():
    """One at a time, 10 ms each: 100/s of 111/s."""
    one = case(Phase(TEN, 3.0, rate=1_000 / 9))
    (short,) = figures(one, played(one, at_once=1))
    (enough,) = figures(one, played(one, at_once=2))
    assert short.per_s < 0.95 * enough.per_s


def test_calls_without_an_answer_end_with_the_case_and_are_named():
    one = case(Phase(TEN, 1.0, rate=100))
    (made,) = figures(one, played(one, late_s=1_000))
    assert {"unanswered": made.calls} == made.errors
    assert 0 == made.per_s < made.calls


def test_errors_are_counted_by_their_type_and_callers_pause_after_them():
    one = case(Phase(TEN, 2.0, callers=1))

    async def main() -> Play:
        async def refuse(_: float) -> None:
            raise ConnectionRefusedError

        return await play(one, refuse, 1)

    (made,) = figures(one, run_virtual(main()))
    assert {"ConnectionRefusedError": made.calls} == made.errors
    assert 0 == made.per_s
    assert 0 < made.calls <= 2.0 / 0.05


# --- what is judged ---------------------------------------------------------------------------


def attempt(*ours_per_s: float, least_per_s: float = 100.0) -> Attempt:
    least = Figures(least_per_s, mean_ms=10, p99_ms=20, calls=400, errors={})
    ours = tuple(replace(least, per_s=each) for each in ours_per_s)
    return Attempt("least", ours, (least,) * len(ours), generator_share=0.1)


@pytest.mark.parametrize(
    ("ours", "met", "again"),
    [
        ([95], True, False),
        ([94], False, True),
        # Of two that differ the third decides.
        ([94, 99], True, True),
        ([80, 99], False, True),
        # Two of three are the median.
        ([94, 93], False, False),
        ([94, 99, 96], True, False),
        ([94, 99, 93], False, False),
    ],
)
def test_the_median_of_up_to_three_attempts_is_judged(ours: list[float], met: bool, again: bool):
    one = case(Phase(TEN, 3.0, callers=1))
    attempts = [attempt(each) for each in ours]
    assert (met, again) == (is_met(one, attempts), is_open(one, attempts))


def test_each_judged_phase_can_fall_short_and_a_prelude_cannot():
    one = case(Phase(TEN, 3.0, callers=1, calls=60), Phase(TEN, 3.0, rate=9), Phase(TEN, 3, rate=9))
    assert is_met(one, [attempt(50, 100, 100)])
    assert not is_met(one, [attempt(100, 90, 100)])
    assert not is_met(one, [attempt(100, 100, 90)])


def test_a_phase_in_which_least_answers_nothing_does_not_pass():
    one = case(Phase(TEN, 3.0, rate=100))
    assert not is_met(one, [attempt(0, least_per_s=0)])


# --- on a mesh --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mesh() -> Iterator[None]:
    pyserve.start(address="127.0.0.1:0")
    try:
        yield
    finally:
        pyserve.shutdown(grace_s=1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("mesh")
@pytest.mark.parametrize(
    ("style", "door"),
    [
        ("awaits", "http"),
        ("blocks", "grpc"),
        ("threads", "handle"),
        ("bounded", "http"),
        ("batches", "grpc"),
    ],
)
def test_every_style_answers_rightly_by_its_door(style: Style, door: Door):
    """Every answer is compared with its call, so an error here is a wrong answer or none."""
    phases = (Phase(TEN, 0.4, callers=2), Phase(EXPONENTIAL, 0.4, rate=20))
    one = case(*phases, style=style, door=door)
    bench = Bench("predicted", seed=1)
    bench.attempt(one)
    bench.attempt(one)
    attempts = bench.attempts[one.name]
    assert {"ours", "least"} == {each.first for each in attempts}
    for each in attempts:
        for made in (*each.ours, *each.least):
            assert {} == made.errors
        assert each.ours[0].per_s > 0
        assert [each.ours[1].calls] == [each.least[1].calls]
