"""Classes whose own engine batches: the rules of admission and of ends, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.errors import (
    Abort,
    BatchError,
    DeploymentUnavailable,
    KindError,
    QueueFull,
    RequestCancelled,
    RequestTimeout,
    RequestTooLarge,
)
from pyserve.stepping import decorator
from pyserve.stepping.decorator import continuous, load_of
from pyserve.stepping.endings import NotStarted
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.values import Done, Emit, Failed
from pyserve.testing.driving import Arrival, Driven, drive
from tests.unit.stepping.engines import Calling, Yielding
from tests.unit.stepping.models import Work, values_of
from tests.unit.stepping.test_driving import arrivals

TIMEOUT_S = 10
BOTH = pytest.mark.parametrize("kind", [Yielding, Calling])


def run(model: Any, requests: list[Any], **options: Any) -> Driven:
    driven = drive(model, requests, options=ContinuousOptions(park_s=None, **options))
    check_released(model)
    return driven


def check_released(model: Any) -> None:
    if isinstance(model, Yielding):
        assert not model.running, "every generator has been closed"
        assert len(model.released) == len(set(map(id, model.released)))
        assert len(model.released) >= model.admitted
    else:
        assert not model.held, "every state has been released"


def ends(driven: Driven) -> list[float | None]:
    return [each.ended_s for each in driven.outcomes]


class TestAdmission:
    @BOTH
    def test_values_come_each_and_the_last_alone(self, kind: Any) -> None:
        last = Arrival(request=Work("b", 2), wants_each=False)
        driven = run(kind(), [Work("a", 3), last])
        assert driven.values == [["a1", "a2", "a3"], ["b2"]]
        assert ends(driven) == [3, 2]
        assert [each.first_s for each in driven.outcomes] == [1, 2]

    def test_at_most_max_running_are_handed_over(self) -> None:
        model = Yielding()
        driven = run(model, [Work(name, 2) for name in "abcde"], max_running=2)
        assert model.running_max == 2
        assert ends(driven) == [2, 2, 4, 4, 6]

    @BOTH
    def test_the_budget_bounds_what_is_handed_over(self, kind: Any) -> None:
        works = [Work("a", 3, cost=6), Work("b", 1, cost=8), *(Work(n, 4, cost=4) for n in "cd")]
        driven = run(kind(), works, budget=10)
        # The large one keeps its place; smaller ones behind it wait.
        assert ends(driven) == [3, 4, 8, 8]

    def test_what_a_request_may_become_is_set_aside(self) -> None:
        works = [Work(n, 5, cost=1, grows=1) for n in "abc"]
        assert ends(run(Yielding(), works, budget=12)) == [5, 5, 10]

    def test_a_state_says_what_it_costs_by_now(self) -> None:
        works = [Work("a", 6, cost=1, grows=1), Arrival(request=Work("b", cost=4), at_s=3.5)]
        driven = run(Calling(), works, budget=7, reserve="now")
        # With 1 + 3 of 7 taken there was no room for 4 more, and nothing was preempted for it.
        assert driven.values == [values_of(Work("a", 6)), ["b1"]]
        assert ends(driven) == [6, 7]

    @BOTH
    def test_what_outgrows_the_budget_goes_on(self, kind: Any) -> None:
        driven = run(kind(), [Work("a", 9, grows=3)], budget=30, reserve="now")
        assert driven.values == [values_of(Work("a", 9))]

    def test_refusals(self) -> None:
        requests = [Work("a", cost=11), *(Work(n, 2) for n in "bcd")]
        driven = run(Yielding(), requests, budget=10, max_running=1, max_waiting=1)
        kinds = [type(each.error) for each in driven.outcomes]
        assert kinds == [RequestTooLarge, type(None), type(None), QueueFull]

    def test_priorities_and_turns_of_clients(self) -> None:
        requests = [
            *(Arrival(request=Work(name), client="many") for name in "abc"),
            Arrival(request=Work("x"), client="few"),
            Arrival(request=Work("u"), client="many", priority=1),
        ]
        # By priority first, then in turns.
        assert ends(run(Yielding(), requests, max_running=1)) == [3, 4, 5, 2, 1]

    def test_the_same_arguments_give_the_same_result(self) -> None:
        def once() -> Driven:
            works = [Work(name, 5) for name in "abcdef"]
            limits = ContinuousOptions(max_running=2, park_s=None)
            return drive(Yielding(), works, seed=7, per_s=1.0, options=limits)

        assert once() == once()


class TestEnds:
    @BOTH
    @pytest.mark.parametrize("waits", [False, True])
    def test_who_leaves_ends_its_request_at_once(self, kind: Any, waits: bool) -> None:
        leaving = Arrival(request=Work("a", 9), leaves_s=1.5)
        requests = [Work("b", 4), leaving] if waits else [leaving, Work("b", 4)]
        driven = run(kind(), requests, max_running=1)
        outcome, other = driven.outcomes[waits], driven.outcomes[not waits]
        assert isinstance(outcome.error, RequestCancelled)
        assert outcome.values == ([] if waits else ["a1"])
        # Its place is free at that moment, and not at the end of a step.
        assert other.ended_s == (4 if waits else 5.5)

    @BOTH
    def test_a_deadline_ends_a_request_in_the_middle(self, kind: Any) -> None:
        driven = run(kind(), [Arrival(request=Work("a", 9), deadline_s=2.5), Work("b", 9)])
        assert isinstance(driven.outcomes[0].error, RequestTimeout)
        assert driven.outcomes[0].values == ["a1", "a2"]
        assert ends(driven) == [2.5, 9]

    @BOTH
    def test_a_failure_fails_its_caller_alone(self, kind: Any) -> None:
        driven = run(kind(), [Work("a", 3, fails_at=2), Work("b", 3)])
        assert isinstance(driven.outcomes[0].error, KeyError)
        assert driven.outcomes[0].values == ["a1"]
        assert driven.outcomes[1].values == values_of(Work("b", 3))

    @pytest.mark.parametrize("raised", [LookupError("a"), SystemExit(3), asyncio.CancelledError()])
    def test_what_admit_raises_fails_its_caller_alone(self, raised: BaseException) -> None:
        class Raising(Calling):
            async def admit(self, work: Work, emit: Callable[[Any], bool]) -> Any:
                if work.name == "a":
                    raise raised
                return await super().admit(work, emit)

        driven = run(Raising(), [Work("a"), Work("b")], max_running=1)
        expected = LookupError if isinstance(raised, Exception) else RuntimeError
        assert isinstance(driven.outcomes[0].error, expected)
        assert driven.outcomes[1].values == ["b1"]

    def test_what_cost_raises_in_the_middle_ends_the_request(self) -> None:
        class Raising(Calling):
            def cost(self, what: Any) -> float:
                if getattr(what, "made", 0) == 2:
                    raise LookupError("cost")
                return super().cost(what)

        driven = run(Raising(), [Work("a", 5), Work("b", 1)])
        assert isinstance(driven.outcomes[0].error, LookupError)
        assert driven.outcomes[1].values == ["b1"]

    def test_the_engine_is_told_when_nobody_wants_more(self) -> None:
        wanted: dict[str, list[bool]] = {"a": [], "b": []}

        class Unending:
            async def admit(self, request: str, emit: Callable[[Any], bool]) -> None:
                asyncio.get_running_loop().call_later(1, self._advance, request, emit)

            def _advance(self, name: str, emit: Callable[[Any], bool]) -> None:
                wanted[name].append(emit(Emit(name)))
                if wanted[name][-1]:
                    asyncio.get_running_loop().call_later(1, self._advance, name, emit)

        requests = [Arrival(request="a", leaves_s=3.5), Arrival(request="b", leaves_s=9.5)]
        driven = drive(Unending(), requests, options=ContinuousOptions(park_s=None))
        assert [len(each.values) for each in driven.outcomes] == [3, 9]
        assert wanted == {"a": [True] * 3 + [False], "b": [True] * 9}

    def test_something_else_than_a_result_is_refused(self) -> None:
        class Odd:
            async def admit(self, request: int, emit: Callable[[Any], bool]) -> None:
                emit(request)

        driven = run_odd(Odd())
        assert isinstance(driven.outcomes[0].error, BatchError)
        assert "Odd emitted 5; emit an Emit, a Done or a Failed" in str(driven.outcomes[0].error)

    @pytest.mark.parametrize("value", [Emit(1), Done(1), Failed(KeyError()), None])
    def test_what_a_step_returns_is_not_yielded(self, value: object) -> None:
        class Odd(Yielding):
            async def admit(self, work: Work) -> Any:  # type: ignore[override]
                yield value

        driven = drive(Odd(), [Work("a")], options=ContinuousOptions())
        error = driven.outcomes[0].error
        assert isinstance(error, BatchError)
        assert f"Odd.admit yielded {value!r}; yield the values themselves" in str(error)


def run_odd(model: Any) -> Driven:
    return drive(model, [5], options=ContinuousOptions(park_s=None))


class TestSlowReaders:
    def test_a_generator_is_not_advanced_beyond_the_slack(self) -> None:
        made: list[int] = []

        class Counting:
            async def admit(self, request: int) -> AsyncIterator[int]:
                for number in range(request):
                    made.append(number)
                    yield number

        slow = Arrival(request=12, reads_s=10, leaves_s=35)
        other = Arrival(request=12)
        limits = ContinuousOptions(slack=4, park_s=None)
        driven = drive(Counting(), [slow, other], options=limits)
        assert driven.outcomes[1].values == list(range(12))
        assert driven.outcomes[0].values == [0, 1, 2, 3]
        # It has read four of them; it goes on when half of the slack has been read.
        assert len(made) - 12 <= 4 + 4 + 1

    def test_it_goes_on_and_loses_nothing(self) -> None:
        slow = Arrival(request=Work("s", 12), reads_s=10)
        driven = run(Yielding(), [slow, Work("b", 12)], slack=4)
        assert driven.values == [values_of(Work("s", 12)), values_of(Work("b", 12))]
        assert driven.outcomes[1].ended_s == 12

    def test_one_that_calls_back_beyond_all_bounds_fails_its_slow_reader(self) -> None:
        class Flooding:
            async def admit(self, request: int, emit: Callable[[Any], bool]) -> None:
                wants = [emit(Emit(number)) for number in range(request)]
                assert wants == [True] * 32 + [False] * (request - 32)

        limits = ContinuousOptions(slack=2, park_s=None)
        driven = drive(Flooding(), [100], options=limits)
        error = driven.outcomes[0].error
        assert isinstance(error, Abort)
        assert "32 values of a request of" in str(error)
        assert driven.outcomes[0].values == list(range(32))


class TestProperties:
    @given(
        st.lists(arrivals, max_size=25), st.integers(1, 5), st.sampled_from([None, 8]), st.data()
    )
    def test_every_request_ends_once_and_every_state_is_released(
        self, requests: list[Arrival], max_running: int, budget: int | None, data: st.DataObject
    ) -> None:
        model: Any = data.draw(st.sampled_from([Yielding, Calling]))()
        driven = run(model, requests, max_running=max_running, budget=budget, slack=2)
        for arrival, outcome in zip(requests, driven.outcomes, strict=True):
            assert outcome.ended_s is not None
            expected = values_of(arrival.request)
            if not arrival.wants_each:
                assert outcome.values in ([], expected[-1:])
            else:
                assert outcome.values == expected[: len(outcome.values)]
            work = arrival.request
            may_fail = (
                arrival.deadline_s is not None
                or arrival.leaves_s is not None
                or budget is not None
                or work.fails_at
            )
            if not may_fail:
                assert outcome.error is None
                assert outcome.values == (expected if arrival.wants_each else expected[-1:])


class TestVirtualTime:
    def test_a_thread_has_no_place_in_it(self) -> None:
        class Threaded:
            async def admit(self, request: int) -> AsyncIterator[int]:
                yield await asyncio.to_thread(abs, request)

        with pytest.raises(RuntimeError, match=r"pyserve\.testing\.client"):
            drive(Threaded(), [-1], options=ContinuousOptions(park_s=None))

    def test_a_callback_of_a_thread_has_none_either(self) -> None:
        with pytest.raises(RuntimeError, match="virtual time"):
            drive(Threaded(), [3], options=ContinuousOptions(park_s=None))

    def test_an_engine_that_never_answers_is_found(self) -> None:
        class Silent:
            async def admit(self, request: int, emit: Callable[[Any], bool]) -> None:
                pass

        with pytest.raises(RuntimeError, match="nothing brings forward in virtual time"):
            drive(Silent(), [1], options=ContinuousOptions(park_s=None))


def model_of(kind: type, **options: Any) -> Any:
    return continuous(**options)(type("Model", (kind,), {}))()


class Threaded:
    """Calls back from a thread of its own, as bindings of engines in C do."""

    def __init__(self) -> None:
        self.released: list[object] = []
        self.threads: list[threading.Thread] = []

    def admit(self, request: int, emit: Callable[[Any], bool]) -> int:
        thread = threading.Thread(target=self._run, args=(request, emit))
        self.threads.append(thread)
        thread.start()
        return request

    def release(self, state: int) -> None:
        self.released.append(state)

    @staticmethod
    def _run(request: int, emit: Callable[[Any], bool]) -> None:
        number = 0
        while emit(Emit(number)):
            number += 1
            if number == request:
                emit(Done("end"))


class TestOnALoop:
    async def test_values_come_from_threads(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            model = model_of(Threaded, slack=1000)
            found = await asyncio.gather(*(_each(model(number)) for number in range(1, 40)))
            assert found == [[*range(number), "end"] for number in range(1, 40)]
            await decorator.close(model)
        for thread in model.threads:
            await asyncio.to_thread(thread.join, TIMEOUT_S)
            assert not thread.is_alive()
        assert sorted(model.released) == [*range(1, 40)]

    async def test_closing_ends_calls_and_generators(self) -> None:
        class Endless(Yielding):
            def __init__(self) -> None:
                super().__init__()
                self.begun = asyncio.Event()

            async def admit(self, work: Work) -> AsyncIterator[str]:
                self.running.append(work)
                self.begun.set()
                try:
                    await asyncio.Event().wait()
                    yield "never"
                finally:
                    self.running.remove(work)

        model = model_of(Endless, max_running=1)
        answers = [asyncio.create_task(_each(model(Work(n, 9)))) for n in "ab"]
        async with asyncio.timeout(TIMEOUT_S):
            await model.begun.wait()
            load = load_of(model)
            assert load is not None
            assert (load.running, load.waiting, load.steps) == (1, 1, 0)
            await decorator.close(model)
            for answer in answers:
                with pytest.raises(DeploymentUnavailable):
                    await answer
            with pytest.raises(DeploymentUnavailable):
                await model(Work("c"))
        assert not model.running
        assert len(model.released) == 1

    async def test_draining_refuses_what_waits_and_lets_the_rest_end(self) -> None:
        gate = asyncio.Event()

        class Gated:
            async def admit(self, request: int) -> AsyncIterator[int]:
                await gate.wait()
                yield request

        model = model_of(Gated, max_running=1)
        async with asyncio.timeout(TIMEOUT_S):
            running, waiting = (asyncio.create_task(_each(model(n))) for n in (1, 2))
            await asyncio.sleep(0)
            draining = asyncio.create_task(decorator.drain(model))
            with pytest.raises(NotStarted):
                await waiting
            assert not draining.done()
            gate.set()
            await draining
            assert await running == [1]
            with pytest.raises(NotStarted):
                await model(3)
            await decorator.close(model)

    async def test_a_fault_of_the_driver_ends_all_calls(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = model_of(Yielding)
        async with asyncio.timeout(TIMEOUT_S):
            first = asyncio.create_task(_each(model(Work("a", 9))))
            await asyncio.sleep(0)
            driver: Any = decorator.find_driver(model)
            monkeypatch.setattr(driver._streams, "prepare", lambda: 1 / 0)
            second = asyncio.create_task(_each(model(Work("b", 9))))
            for task in (first, second):
                with pytest.raises(RuntimeError, match="handing requests over failed"):
                    await task
            await decorator.close(model)
        assert not model.running


async def _each(answer: Any) -> list[Any]:
    return [value async for value in answer]


class TestDecorator:
    @pytest.mark.parametrize(
        "option",
        [
            {"step_ms": 5.0},
            {"isolate": False},
            {"max_keys": 3},
            {"park_s": None},
            {"max_preempts": 1},
            {"step_in": "loop"},
        ],
    )
    def test_options_of_steps_are_refused(self, option: dict[str, Any]) -> None:
        (name,) = option
        with pytest.raises(KindError, match=f"on Model: {name} is about steps"):
            model_of(Yielding, **option)

    @pytest.mark.parametrize("method", ["key", "preempt", "resume"])
    def test_methods_of_steps_are_refused(self, method: str) -> None:
        methods = {method: lambda self, what: None}
        with pytest.raises(KindError, match=f"{method} is about steps"):
            continuous(type("Model", (Yielding,), methods))

    def test_admit_yields_or_takes_a_callback(self) -> None:
        with pytest.raises(KindError, match="it has no step, which makes one step"):
            continuous(type("Half", (), {"admit": lambda self, request: None}))

    def test_a_class_with_steps_does_not_yield_values_by_admit(self) -> None:
        class Both(Yielding):
            def step(self, states: list[Any]) -> list[Any]:
                return states

        with pytest.raises(KindError, match="its admit yields"):
            continuous(Both)

    async def test_a_request_may_be_named_and_the_callback_is_no_argument(self) -> None:
        model = model_of(Threaded)
        assert await model(request=3) == "end"
        with pytest.raises(TypeError, match="too many positional arguments"):
            model(1, 2)
        await decorator.close(model)
