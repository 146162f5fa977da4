"""Classes whose methods raise, or say impossible things: only their callers may notice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyserve.errors import Abort, OptionError
from pyserve.stepping import decorator
from pyserve.stepping.decorator import continuous
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.scheduler import Scheduler
from pyserve.stepping.values import Emit, Failed
from pyserve.testing.driving import Arrival, Driven, drive
from tests.support.waiting import eventually
from tests.unit.stepping.models import Counting, Snapping, State, Work, values_of

TIMEOUT_S = 10


def _run(model: Any, requests: list[Any], **options: Any) -> Driven:
    return drive(model, requests, step_s=1.0, options=ContinuousOptions(**options))


class TestPreempt:
    def test_a_state_is_released_though_preempt_raises(self) -> None:
        class Raising(Snapping):
            def preempt(self, state: State) -> tuple[Work, int]:
                raise KeyError(state.work.name)

        model = Raising()
        works = [Work(n, 5, cost=1, grows=1) for n in "ab"]
        driven = _run(model, works, budget=8, reserve="now")
        assert isinstance(driven.outcomes[1].error, KeyError)
        assert not model.held

    def test_a_snapshot_above_the_budget_holds_up_nobody(self) -> None:
        class Jumping(Snapping):
            def cost(self, what: Any) -> float:
                work, made = (what.work, what.made) if isinstance(what, State) else (what, 0)
                work, made = work if isinstance(work, tuple) else (work, made)
                return 12 if work.name == "b" and made else 1

        works = [Work("a", 3), Work("b", 3), Work("c", 3)]
        driven = _run(Jumping(), works, max_running=2, budget=10, reserve="now")
        error = driven.outcomes[1].error
        assert isinstance(error, Abort)
        assert "Jumping was exceeded" in str(error)
        assert driven.outcomes[0].values == values_of(works[0])
        assert driven.outcomes[2].values == values_of(works[2])


class TestCost:
    def test_an_int_beyond_all_floats_fails_its_caller_alone(self) -> None:
        class Huge(Counting):
            def cost(self, what: Any) -> Any:
                is_late = isinstance(what, State) and what.work.name == "a" and what.made == 1
                return 10**400 if is_late or getattr(what, "name", "") == "c" else 1

        driven = _run(Huge(), [Work("a", 3), Work("b", 3), Work("c", 3)])
        assert isinstance(driven.outcomes[0].error, OptionError)
        assert driven.outcomes[1].values == values_of(Work("b", 3))
        assert isinstance(driven.outcomes[2].error, OptionError)


class TestEndsOfIterations:
    @pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
    @pytest.mark.parametrize("way", ["failed", "step", "admit"])
    def test_they_are_failures_of_requests(self, kind: type[Exception], way: str) -> None:
        class Ending:
            async def admit(self, request: int) -> int:
                if way == "admit":
                    raise kind("early")
                return request

            def step(self, states: list[int]) -> list[Failed]:
                if way == "step":
                    raise kind("early")
                return [Failed(kind("early")) for _ in states]

        error = _run(Ending(), [1]).outcomes[0].error
        assert isinstance(error, RuntimeError)
        assert kind.__name__ in str(error)

    def test_so_are_those_that_an_engine_gives_its_callback(self) -> None:
        class Calling:
            def admit(self, _request: int, emit: Any) -> None:
                emit(Emit(1))
                emit(Failed(StopAsyncIteration("early")))

        outcome = _run(Calling(), [Arrival(request=1)]).outcomes[0]
        assert outcome.values == [1]
        assert isinstance(outcome.error, RuntimeError)


class TestExits:
    def test_one_out_of_release_ends_nothing(self) -> None:
        class Leaving(Counting):
            def release(self, state: State) -> None:
                super().release(state)
                raise SystemExit(3)

        model = Leaving()
        assert _run(model, [Work("a", 2)]).values == [values_of(Work("a", 2))]
        assert not model.held

    @pytest.mark.parametrize("step_in", ["thread", "loop"])
    async def test_a_replica_hears_that_nothing_steps_any_more(
        self, step_in: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_arguments: object) -> None:
            raise ArithmeticError("a fault of ours")

        told: list[Exception] = []
        model: Any = continuous(step_in=step_in)(type("Model", (Counting,), {}))()
        decorator.tell_failure(model, told.append)
        monkeypatch.setattr(Scheduler, "choose", fail)
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(RuntimeError, match="a fault of ours"):
                await model(Work("a", 2))
            await eventually(lambda: bool(told))
            await decorator.close(model)
        assert "a fault of ours" in str(told[0])
