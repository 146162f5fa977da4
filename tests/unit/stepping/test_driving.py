"""Continuous batching in virtual time: each rule of the guide page, and properties of all."""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.errors import (
    Abort,
    BatchError,
    QueueFull,
    RequestCancelled,
    RequestTimeout,
)
from pyserve.stepping.entries import Entry
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.scheduler import Scheduler
from pyserve.stepping.values import Done, Emit
from pyserve.testing.driving import Arrival, Driven, drive
from tests.unit.stepping.models import Counting, Slow, Snapping, State, Work, values_of


def run(model: Counting, requests: list[Any], step_s: float = 1.0, **options: Any) -> Driven:
    found = drive(model, requests, step_s=step_s, options=ContinuousOptions(**options))
    assert not model.held, "every state has been released"
    return found


def finished(driven: Driven) -> str:
    """Return the names of requests in the order of their ends."""
    order = sorted(driven.outcomes, key=lambda each: (each.ended_s, each.request.name))
    return "".join(each.request.name for each in order)


def begun(driven: Driven) -> str:
    """Return the names of requests in the order of their first steps."""
    order = dict.fromkeys(number for step in driven.steps for number in step.requests)
    return "".join(driven.outcomes[number].request.name for number in order)


class TestSteps:
    def test_a_request_joins_and_leaves_between_steps(self) -> None:
        works = [Work("a", 3), Work("b", 1)]
        late = Arrival(request=Work("c", 1), at_s=1.5)
        driven = run(Counting(), [*works, late])
        assert [step.requests for step in driven.steps] == [(0, 1), (0,), (0, 2)]
        assert driven.values == [["a1", "a2", "a3"], ["b1"], ["c1"]]

    def test_who_wants_the_last_value_gets_it_alone(self) -> None:
        driven = run(Counting(), [Arrival(request=Work("a", 3), wants_each=False)])
        assert driven.values == [["a3"]]

    def test_at_most_max_running_share_a_step(self) -> None:
        driven = run(Counting(), [Work(name, 2) for name in "abc"], max_running=2)
        assert max(len(step.requests) for step in driven.steps) == 2

    def test_the_target_of_a_step_keeps_fewer_running(self) -> None:
        works = [Work(name, 40) for name in "abcdefgh"]
        driven = drive(
            Counting(),
            [Arrival(request=work, at_s=0.05 * n) for n, work in enumerate(works)],
            step_s=lambda count: 0.001 + 0.002 * count,
            options=ContinuousOptions(step_ms=9.5),
        )
        late = driven.steps[len(driven.steps) // 2 :]
        sizes = [len(step.requests) for step in late]
        assert max(sizes) <= 5  # One more is tried now and then.
        assert statistics.median(sizes) == 4
        assert [each.ended_s is not None for each in driven.outcomes] == [True] * 8

    def test_the_same_arguments_give_the_same_result(self) -> None:
        def once() -> Any:
            works = [Work(name, 5) for name in "abcdef"]
            return drive(
                Counting(), works, seed=7, per_s=1.0, options=ContinuousOptions(max_running=2)
            )

        assert once() == once()

    def test_results_may_be_of_classes_of_their_own(self) -> None:
        class Token(Emit):
            pass

        class Last(Done):
            pass

        class Naming(Counting):
            def step(self, states: list[State]) -> list[Any]:
                found = super().step(states)
                return [(Last if isinstance(r, Done) else Token)(*r.values) for r in found]

        assert [["a1", "a2"]] == run(Naming(), [Work("a", 2)]).values


class TestAdmission:
    def test_a_large_request_keeps_its_place(self) -> None:
        works = [Work("a", 3, cost=6), Work("b", 1, cost=8), *(Work(n, 4, cost=4) for n in "cd")]
        driven = run(Counting(), works, budget=10)
        assert begun(driven) == "abcd"

    def test_one_larger_than_the_budget_is_refused_at_once(self) -> None:
        driven = run(Counting(), [Work("a", 5), Work("b", cost=11)], budget=10)
        error = driven.outcomes[1].error
        assert isinstance(error, Abort)
        assert "costs 11, more than the whole budget of Counting, 10" in str(error)
        assert driven.outcomes[1].ended_s == 0
        assert driven.outcomes[0].values == values_of(Work("a", 5))

    def test_more_than_may_wait_are_refused(self) -> None:
        driven = run(Counting(), [Work(n, 2) for n in "abcd"], max_running=1, max_waiting=2)
        assert [type(each.error) for each in driven.outcomes] == [*[type(None)] * 3, QueueFull]

    def test_without_a_queue_free_places_are_taken(self) -> None:
        driven = run(Counting(), [Work(n, 2) for n in "abc"], max_running=2, max_waiting=0)
        assert [type(each.error) for each in driven.outcomes] == [*[type(None)] * 2, QueueFull]

    def test_higher_priorities_come_first(self) -> None:
        requests = [
            Arrival(request=Work(name), priority=priority)
            for name, priority in zip("abcd", (0, 2, 1, 2), strict=True)
        ]
        assert begun(run(Counting(), requests, max_running=1)) == "bdca"

    def test_clients_take_turns(self) -> None:
        requests = [Arrival(request=Work(name), client="many") for name in "abcd"]
        requests += [Arrival(request=Work(name), client="few") for name in "xy"]
        assert begun(run(Counting(), requests, max_running=1)) == "axbycd"

    def test_a_turn_counts_by_what_it_costs(self) -> None:
        requests = [Arrival(request=Work(name, cost=3), client="large") for name in "abc"]
        requests += [Arrival(request=Work(name), client="small") for name in "uvwxyz"]
        assert begun(run(Counting(), requests, max_running=1)) == "auvwbxyzc"

    def test_a_deadline_that_cannot_be_met_comes_last(self) -> None:
        requests = [
            Work("a", 9),
            Arrival(request=Work("b", 9), at_s=8.5, deadline_s=0.6, priority=5),
            Arrival(request=Work("c"), at_s=8.6),
        ]
        driven = run(Counting(), requests, max_running=1)
        assert begun(driven) == "ac"
        assert isinstance(driven.outcomes[1].error, RequestTimeout)

    def test_an_expired_request_ends_before_the_next_step(self) -> None:
        driven = run(Counting(), [Arrival(request=Work("a", 9), deadline_s=2.5), Work("b", 9)])
        assert isinstance(driven.outcomes[0].error, RequestTimeout)
        assert driven.outcomes[0].ended_s == 3
        assert [step.requests for step in driven.steps[2:4]] == [(0, 1), (1,)]

    def test_deadlines_of_what_has_ended_are_forgotten(self) -> None:
        scheduler: Scheduler[int] = Scheduler(ContinuousOptions())
        for number in range(5000):
            entry = Entry(number, deadline=1e9)
            assert scheduler.add(entry) is None
            scheduler.end(entry)
        assert len(scheduler._deadlines) < 600

    @pytest.mark.parametrize("waits", [False, True])
    def test_a_cancelled_request_ends_before_the_next_step(self, waits: bool) -> None:
        leaving = Arrival(request=Work("a", 9), leaves_s=1.5)
        requests = [Work("b", 4), leaving] if waits else [leaving, Work("b", 4)]
        driven = run(Counting(), requests, max_running=1 if waits else 2)
        outcome = driven.outcomes[1 if waits else 0]
        assert isinstance(outcome.error, RequestCancelled)
        assert outcome.ended_s == 2


class TestKeys:
    def test_only_equal_keys_share_a_step(self) -> None:
        works = [Work("a", 4, key=1), Work("b", 4, key=2), Work("c", 4, key=1)]
        driven = run(Counting(), works)  # the model looks at the keys
        assert all(values == values_of(w) for values, w in zip(driven.values, works, strict=True))

    def test_keys_take_turns_by_time(self) -> None:
        works = [Work(n, 30, key="slow") for n in "abc"] + [Work("x", 30, key="fast")]

        class Timed(Counting):
            def step(self, states: Any) -> Any:
                self.is_slow = states[0].work.key == "slow"
                return super().step(states)

        model = Timed()
        driven = drive(
            model,
            works,
            step_s=lambda _: 0.030 if model.is_slow else 0.010,
            options=ContinuousOptions(),
        )
        fast = [step.at_s for step in driven.steps if step.requests == (3,)]
        slow = [step.at_s for step in driven.steps if step.requests != (3,)]
        # By the time of its twentieth step the fast key has had about as much time as the slow.
        before = sum(1 for at_s in slow if at_s < fast[19])
        assert before * 0.030 == pytest.approx(20 * 0.010, rel=0.35)

    def test_at_most_max_keys_are_held(self) -> None:
        works = [Work(n, 3, key=n) for n in "abc"] + [Work("d", 3, key="a")]
        model = Counting()
        driven = run(model, works, max_keys=2)
        assert begun(driven) == "adbc"

    def test_who_waits_for_a_key_is_not_passed_for_ever(self) -> None:
        first = [Work("a", 2, key="x"), Work("b", 2, key="y")]
        others = [Arrival(request=Work("x", 2, key="x"), at_s=0.5 * n) for n in range(60)]
        driven = run(Counting(), [*first, *others], max_keys=1, max_running=4)
        assert driven.outcomes[1].ended_s is not None
        assert driven.outcomes[1].ended_s < 12


class TestErrors:
    def test_a_failed_state_fails_alone(self) -> None:
        driven = run(Counting(), [Work("a", 3, fails_at=2), Work("b", 3)])
        assert isinstance(driven.outcomes[0].error, KeyError)
        assert driven.outcomes[0].values == ["a1"]
        assert driven.outcomes[1].values == ["b1", "b2", "b3"]

    def test_an_exception_out_of_a_step_fails_those_in_it(self) -> None:
        works = [Work("a", 3, poison_at=2), Work("b", 3), Arrival(request=Work("c"), at_s=1.5)]
        driven = run(Counting(), works)
        assert [type(each.error) for each in driven.outcomes] == [ValueError] * 2 + [type(None)]

    def test_with_isolate_the_culprit_fails_alone(self) -> None:
        works = [Work(n, 3, poison_at=2 if n in "bg" else 0) for n in "abcdefgh"]
        driven = run(Counting(), works, isolate=True)
        failed = [each.request.name for each in driven.outcomes if each.error is not None]
        assert failed == ["b", "g"]
        assert all(each.values == values_of(each.request) for each in driven.outcomes[2:6])

    @pytest.mark.parametrize(
        ("returned", "text"),
        [
            ([], "returned 0 for 1 states"),
            (None, "returned None for 1 states"),
            (["x"], "returned 'x' for a state; return Emit, Done, Failed or None"),
        ],
    )
    def test_a_wrong_result_is_said(self, returned: Any, text: str) -> None:
        class Wrong(Counting):
            def step(self, states: Any) -> Any:
                return returned

        driven = run(Wrong(), [Work("a")])
        error = driven.outcomes[0].error
        assert isinstance(error, BatchError)
        assert text in str(error)

    @pytest.mark.parametrize("method", ["cost", "key", "bound", "admit"])
    def test_what_a_method_raises_fails_its_caller(self, method: str) -> None:
        class Raising(Counting):
            pass

        def raising(self: Raising, what: Any) -> Any:
            if getattr(what, "name", "") == "a":
                raise LookupError(method)
            return getattr(super(Raising, self), method)(what)

        setattr(Raising, method, raising)
        driven = run(Raising(), [Work("a"), Work("b")])
        assert isinstance(driven.outcomes[0].error, LookupError)
        assert driven.outcomes[1].values == ["b1"]


class TestSlowAdmissions:
    def test_an_admission_takes_the_time_that_it_awaits(self) -> None:
        driven = run(Slow(), [Work("a", admits_s=3), Work("b", admits_s=1)])
        assert [4, 2] == [each.ended_s for each in driven.outcomes]

    @pytest.mark.parametrize("insists", [False, True])
    @pytest.mark.parametrize("ends", [{"leaves_s": 0.5}, {"deadline_s": 0.5}])
    @pytest.mark.parametrize("admits_s", [8.0, math.inf])
    def test_one_that_ends_frees_its_place_and_budget_at_once(
        self, admits_s: float, ends: dict[str, Any], insists: bool
    ) -> None:
        work = Work("a", cost=10, admits_s=admits_s, insists=insists)
        model = Slow()
        driven = run(
            model, [Arrival(request=work, **ends), Work("b", cost=10)], max_running=1, budget=10
        )
        kind = RequestCancelled if "leaves_s" in ends else RequestTimeout
        assert isinstance(driven.outcomes[0].error, kind)
        assert [0.5, 1.5] == [each.ended_s for each in driven.outcomes]
        assert 1 + insists == len(model.states)

    def test_a_state_that_comes_later_is_released(self) -> None:
        class Stubborn(Slow):
            async def admit(self, work: Work) -> Any:  # type: ignore[override]
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(9)
                await asyncio.sleep(2)
                return await super().admit(work)

        model = Stubborn()
        driven = run(model, [Arrival(request=Work("a"), leaves_s=1)])
        assert 1 == driven.outcomes[0].ended_s
        assert [True] == [state.released for state in model.states]

    def test_a_thread_takes_no_time(self) -> None:
        class Threaded(Counting):
            async def admit(self, work: Work) -> Any:  # type: ignore[override]
                return await asyncio.to_thread(super().admit, work)

        driven = run(Threaded(), [Arrival(request=Work("a"), deadline_s=1.5)])
        assert [["a1"]] == driven.values

    def test_one_that_hangs_says_who_is_left(self) -> None:
        with pytest.raises(RuntimeError, match=r"nothing brings forward: \[0\]"):
            run(Slow(), [Work("a", admits_s=math.inf)])


class TestSlowReaders:
    def test_a_slow_reader_is_left_out_and_holds_up_nobody(self) -> None:
        slow = Arrival(request=Work("s", 12), reads_s=10)
        driven = run(Counting(), [slow, Work("b", 12)], slack=4, park_s=None)
        assert driven.outcomes[1].ended_s == 12
        assert driven.outcomes[0].values == values_of(Work("s", 12))
        assert [0 in step.requests for step in driven.steps[:12]].count(True) == 5

    @pytest.mark.parametrize("kind", [Counting, Snapping])
    def test_it_is_preempted_after_a_while_and_loses_nothing(self, kind: type[Counting]) -> None:
        slow = Arrival(request=Work("s", 12, cost=9), reads_s=10)
        other = Arrival(request=Work("b", 2, cost=9), at_s=2)
        model = kind()
        driven = run(model, [slow, other], budget=10, slack=4, park_s=5)
        assert driven.outcomes[0].values == values_of(Work("s", 12))
        assert driven.outcomes[1].ended_s == pytest.approx(12, abs=2)
        assert finished(driven) == "bs"
        assert (model.resumed > 0) == (kind is Snapping)

    def test_one_that_never_reads_ends_with_its_deadline(self) -> None:
        slow = Arrival(request=Work("s", 12), reads_s=1e9, deadline_s=60)
        driven = run(Counting(), [slow], slack=4, park_s=5)
        assert isinstance(driven.outcomes[0].error, RequestTimeout)
        assert driven.outcomes[0].ended_s == 60


class TestBudget:
    def test_what_it_may_become_is_set_aside(self) -> None:
        works = [Work(n, 5, cost=1, grows=1) for n in "abc"]
        driven = run(Counting(), works, budget=12)
        assert begun(driven) == "abc"
        assert max(len(step.requests) for step in driven.steps) == 2

    @pytest.mark.parametrize("kind", [Counting, Snapping])
    def test_by_its_cost_now_more_run_until_some_are_preempted(self, kind: type[Counting]) -> None:
        works = [Work(n, 5, cost=1, grows=1) for n in "abc"]
        model = kind()
        driven = run(model, works, budget=12, reserve="now")
        assert max(len(step.requests) for step in driven.steps) == 3
        assert driven.values == [values_of(work) for work in works]
        assert finished(driven) == "abc"
        assert (model.resumed > 0) == (kind is Snapping)

    def test_the_lowest_priority_goes_first(self) -> None:
        requests = [
            Arrival(request=Work(n, 5, cost=1, grows=1), priority=1 if n == "c" else 0)
            for n in "abc"
        ]
        driven = run(Snapping(), requests, budget=12, reserve="now")
        assert finished(driven) == "cab" or finished(driven) == "acb"
        assert driven.outcomes[1].ended_s == max(each.ended_s or 0 for each in driven.outcomes)

    def test_one_that_outgrows_the_budget_alone_fails(self) -> None:
        driven = run(Counting(), [Work("a", 9, grows=3), Work("b", 2)], budget=12, reserve="now")
        error = driven.outcomes[0].error
        assert isinstance(error, Abort)
        assert "the budget of Counting was exceeded" in str(error)
        assert driven.outcomes[1].values == ["b1", "b2"]


works = st.builds(
    Work,
    name=st.sampled_from("abcdefgh"),
    steps=st.integers(1, 8),
    cost=st.integers(0, 6),
    grows=st.sampled_from([0, 0, 1, 2]),
    key=st.sampled_from([None, 1, 2, 3]),
    fails_at=st.sampled_from([0, 0, 0, 0, 2]),
    poison_at=st.sampled_from([0, 0, 0, 0, 3]),
    admits_s=st.sampled_from([0.0, 0.0, 0.3, 7.0]),
    insists=st.booleans(),
)
arrivals = st.builds(
    Arrival,
    request=works,
    at_s=st.integers(0, 20).map(float),
    client=st.sampled_from(["x", "y", "z"]),
    priority=st.integers(-1, 1),
    deadline_s=st.sampled_from([None, None, None, 3.5, 10.0, 40.0]),
    leaves_s=st.sampled_from([None, None, None, 0.5, 4.0, 20.0]),
    reads_s=st.sampled_from([0.0, 0.0, 0.5, 4.0]),
    wants_each=st.booleans(),
)
options = st.builds(
    ContinuousOptions,
    max_running=st.integers(1, 5),
    budget=st.sampled_from([None, 8, 16]),
    max_waiting=st.sampled_from([0, 2, 100]),
    reserve=st.sampled_from(["bound", "now"]),
    isolate=st.booleans(),
    max_keys=st.integers(1, 3),
    slack=st.integers(1, 4),
    park_s=st.sampled_from([None, 0, 3.0]),
    max_preempts=st.integers(0, 3),
)


class TestProperties:
    @given(st.lists(arrivals, max_size=25), options, st.sampled_from([Counting, Slow, Snapping]))
    def test_every_request_ends_once_and_every_state_is_released(
        self, requests: list[Arrival], limits: ContinuousOptions, kind: type[Counting]
    ) -> None:
        model = kind()
        driven = drive(model, requests, step_s=1.0, options=limits)
        assert not model.held
        for arrival, outcome in zip(requests, driven.outcomes, strict=True):
            assert outcome.ended_s is not None
            expected = values_of(arrival.request)
            got = outcome.values
            if not arrival.wants_each:
                assert got in ([], expected[-1:])
            else:
                assert got == expected[: len(got)]
            may_fail = (
                arrival.deadline_s is not None
                or arrival.leaves_s is not None
                or limits.budget is not None
                or limits.max_waiting < len(requests)
                or arrival.request.fails_at
                or any(each.request.poison_at for each in requests)
            )
            if not may_fail:
                assert outcome.error is None
                assert got == (expected if arrival.wants_each else expected[-1:])

    @given(st.lists(arrivals, max_size=25), options, st.sampled_from([Counting, Slow]))
    def test_limits_hold_in_every_step(
        self, requests: list[Arrival], limits: ContinuousOptions, kind: type[Counting]
    ) -> None:
        class Looking(kind):  # type: ignore[misc, valid-type]
            def step(self, states: Any) -> Any:
                assert len(states) <= limits.max_running
                assert len(self.held) <= 2 * limits.max_running
                assert len({state.work.key for state in self.held}) <= limits.max_keys
                if limits.budget is not None:
                    assert sum(map(self.cost, self.held)) <= limits.budget
                return super().step(states)

        drive(Looking(), requests, step_s=1.0, options=limits)
