"""Continuously batched instances on a thread of their own, and on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pyserve.errors import (
    BatchError,
    DeploymentUnavailable,
    KindError,
    RequestTimeout,
    WrongMoment,
)
from pyserve.request import CURRENT, Request
from pyserve.stepping import decorator
from pyserve.stepping.decorator import continuous, find_driver
from pyserve.stepping.endings import NotStarted
from pyserve.stepping.values import Done, Emit
from tests.support.waiting import wait_until
from tests.unit.stepping.models import Counting, Snapping, State, Work, values_of

TIMEOUT_S = 10


def model_of(kind: type[Counting] = Counting, **options: Any) -> Any:
    """Return an instance of a class of its own, batched continuously."""
    return continuous(**options)(type("Model", (kind,), {}))()


@asynccontextmanager
async def closing(model: Any) -> AsyncIterator[Any]:
    async with asyncio.timeout(TIMEOUT_S):
        try:
            yield model
        finally:
            await decorator.close(model)
    assert not model.held, "every state has been released"


async def each(answer: Any) -> list[Any]:
    return [value async for value in answer]


class Watched(Counting):
    """One that says when it steps."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)

    def step(self, states: list[State]) -> list[Any]:
        self.begun.release()
        return super().step(states)

    async def wait_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=TIMEOUT_S)


class Gated(Watched):
    """One whose steps wait until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Semaphore(0)

    def step(self, states: list[State]) -> list[Any]:
        self.begun.release()
        assert self.may_go.acquire(timeout=TIMEOUT_S)
        return Counting.step(self, states)


WHERE = pytest.mark.parametrize("step_in", ["thread", "loop"])


@WHERE
async def test_values_come_each_and_the_last_alone(step_in: str) -> None:
    async with closing(model_of(step_in=step_in)) as model:
        streamed, last = await asyncio.gather(each(model(Work("a", 3))), model(Work("b", 4)))
        assert (streamed, last) == (["a1", "a2", "a3"], "b4")


@WHERE
async def test_a_hundred_calls_at_once(step_in: str) -> None:
    works = [Work(f"n{number}.", 1 + number % 7) for number in range(100)]
    async with closing(model_of(step_in=step_in, max_running=9)) as model:
        found = await asyncio.gather(*(each(model(work)) for work in works))
        assert found == [values_of(work) for work in works]


@WHERE
async def test_admit_may_be_async(step_in: str) -> None:
    class Later(Counting):
        async def admit(self, work: Work) -> State:  # type: ignore[override]
            await asyncio.sleep(0)
            return super().admit(work)

    async with closing(model_of(Later, step_in=step_in)) as model:
        assert await model(Work("a", 2)) == "a2"


@WHERE
async def test_what_an_async_admit_raises_fails_its_caller(step_in: str) -> None:
    class Raising(Counting):
        async def admit(self, work: Work) -> State:  # type: ignore[override]
            raise LookupError(work.name)

    async with closing(model_of(Raising, step_in=step_in)) as model:
        with pytest.raises(LookupError):
            await model(Work("a"))


async def test_a_step_may_be_async() -> None:
    class Awaiting(Counting):
        async def step(self, states: list[State]) -> list[Any]:  # type: ignore[override]
            await asyncio.sleep(0)
            return super().step(states)

    async with closing(model_of(Awaiting)) as model:
        assert await each(model(Work("a", 2))) == ["a1", "a2"]


async def test_a_step_does_not_hold_the_loop() -> None:
    async with closing(model_of(Gated)) as model:
        call = asyncio.create_task(each(model(Work("a", 1))))
        await model.wait_begun()
        assert not call.done()  # The loop turns while the step waits.
        model.may_go.release()
        assert await call == ["a1"]


async def test_a_cancelled_call_is_released_before_the_next_step() -> None:
    async with closing(model_of(Gated)) as model:
        leaving = asyncio.create_task(_awaited(model(Work("a", 9))))
        await model.wait_begun()
        staying = asyncio.create_task(each(model(Work("b", 1))))
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        model.may_go.release(2)
        assert await staying == ["b1"]
        assert [state.made for state in model.states] == [1, 1]
        assert not model.held


async def test_leaving_a_stream_ends_its_request() -> None:
    async with closing(model_of(Gated)) as model:
        answer = model(Work("a", 9))
        model.may_go.release()
        assert await anext(answer) == "a1"
        await answer.aclose()
        model.may_go.release(9)
        await decorator.drain(model)
        with pytest.raises(StopAsyncIteration):
            await anext(aiter(answer))


@WHERE
async def test_a_slow_reader_is_parked_and_goes_on(step_in: str) -> None:
    async with closing(model_of(Snapping, step_in=step_in, slack=2, park_s=0)) as model:
        answer = model(Work("a", 20))
        first = await anext(answer)
        others = await each(model(Work("b", 30)))  # It does not wait for the slow reader.
        assert [first, *(await each(answer))] == values_of(Work("a", 20))
        assert others == values_of(Work("b", 30))
        assert model.resumed > 0


@WHERE
async def test_a_deadline_ends_a_request_in_the_middle(step_in: str) -> None:
    class Endless(Counting):
        def step(self, states: list[State]) -> list[Any]:
            return [Emit(1)] * len(states)

    async with closing(model_of(Endless, step_in=step_in)) as model:
        request = Request(deadline=asyncio.get_running_loop().time() + 0.05)
        context = contextvars.copy_context()
        context.run(CURRENT.set, request)
        task = asyncio.create_task(_awaited(model(Work("a"))), context=context)
        with pytest.raises(RequestTimeout):
            await task


async def _awaited(answer: Any) -> Any:
    return await answer


@WHERE
async def test_admit_sees_its_own_request(step_in: str) -> None:
    class Seeing(Counting):
        def admit(self, work: Work) -> State:
            current = CURRENT.get()
            assert current is not None
            return super().admit(Work(current.request().request_id))

    async with closing(model_of(Seeing, step_in=step_in)) as model:
        context = contextvars.copy_context()
        context.run(CURRENT.set, Request(request_id="mine"))
        task = asyncio.create_task(_awaited(model(Work("a"))), context=context)
        assert await task == "mine1"


@WHERE
async def test_closing_ends_calls_and_releases_their_states(step_in: str) -> None:
    class Endless(Watched):
        def step(self, states: list[State]) -> list[Any]:
            super().step(states)
            return [Emit(1)] * len(states)

    model = model_of(Endless, step_in=step_in, max_running=1)
    running, waiting = (asyncio.create_task(each(model(Work(n)))) for n in "ab")
    async with asyncio.timeout(TIMEOUT_S):
        await model.wait_begun()
        await decorator.close(model)
        for task in (running, waiting):
            with pytest.raises(DeploymentUnavailable):
                await task
        with pytest.raises(DeploymentUnavailable):
            await model(Work("c"))
    assert not model.held
    wait_until(lambda: "Model steps" not in [each.name for each in threading.enumerate()])


@WHERE
async def test_draining_refuses_what_waits_and_lets_the_rest_end(step_in: str) -> None:
    async with closing(model_of(Watched, step_in=step_in, max_running=1)) as model:
        running = asyncio.create_task(each(model(Work("a", 300))))
        await model.wait_begun()
        waiting = asyncio.create_task(each(model(Work("b"))))
        await asyncio.sleep(0)
        await decorator.drain(model)
        with pytest.raises(NotStarted):
            await waiting
        assert len(await running) == 300
        with pytest.raises(NotStarted):
            await model(Work("c"))


@WHERE
async def test_a_system_exit_in_a_step_fails_its_callers_alone(step_in: str) -> None:
    class Exiting(Counting):
        def step(self, states: list[State]) -> list[Any]:
            if any(state.work.name == "a" for state in states):
                raise SystemExit(3)
            return super().step(states)

    async with closing(model_of(Exiting, step_in=step_in)) as model:
        with pytest.raises(RuntimeError, match="it raised"):
            await model(Work("a"))
        assert await model(Work("b")) == "b1"


@WHERE
@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
async def test_an_exit_in_an_async_admit_fails_its_caller_alone(
    step_in: str, error: BaseException
) -> None:
    class Exiting(Counting):
        async def admit(self, work: Work) -> State:  # type: ignore[override]
            if work.name == "a":
                raise error
            return super().admit(work)

    async with closing(model_of(Exiting, step_in=step_in)) as model:
        with pytest.raises(RuntimeError, match="it raised"):
            await model(Work("a"))
        assert await model(Work("b")) == "b1"


async def test_closing_can_be_left_while_a_step_does_not_return() -> None:
    model = model_of(Gated)
    call = asyncio.create_task(_awaited(model(Work("a"))))
    await model.wait_begun()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await decorator.close(model)
    model.may_go.release()
    async with asyncio.timeout(TIMEOUT_S):
        await decorator.close(model)
    assert await call == "a1"


@WHERE
async def test_a_request_without_a_value_says_so(step_in: str) -> None:
    class Silent(Counting):
        def step(self, states: list[State]) -> list[Any]:
            return [Done() for _ in states]

    async with closing(model_of(Silent, step_in=step_in)) as model:
        with pytest.raises(BatchError, match="ended without a value"):
            await model(Work("a"))
        assert await each(model(Work("a"))) == []


async def test_a_fault_of_the_driver_ends_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(Gated)
    first = asyncio.create_task(_awaited(model(Work("a", 5))))
    async with asyncio.timeout(TIMEOUT_S):
        await model.wait_begun()
        second = asyncio.create_task(_awaited(model(Work("b"))))
        await asyncio.sleep(0)
        driver = find_driver(model)
        assert driver is not None
        monkeypatch.setattr(driver._engine, "prepare", lambda: 1 / 0)
        model.may_go.release()
        for task in (first, second):
            with pytest.raises(RuntimeError, match="stepping failed"):
                await task
        await decorator.close(model)
    assert not model.held


def test_an_instance_is_for_one_loop() -> None:
    model = model_of()

    async def once() -> None:
        assert await model(Work("a")) == "a1"

    asyncio.run(once())
    with pytest.raises(WrongMoment, match="another event loop"):
        asyncio.run(once())
    asyncio.run(_ended(model))


async def _ended(model: Any) -> None:
    driver = find_driver(model)
    assert driver is not None
    await driver.close()


async def test_awaiting_and_iterating_one_answer_is_refused() -> None:
    async with closing(model_of()) as model:
        answer = model(Work("a", 3))
        assert await anext(answer) == "a1"
        with pytest.raises(WrongMoment, match="not both"):
            await answer
        await answer.aclose()


class TestDecorator:
    def test_it_needs_admit_and_step(self) -> None:
        with pytest.raises(KindError, match="it has no admit"):
            continuous(type("Empty", (), {}))
        with pytest.raises(KindError, match="it has no step"):
            continuous(type("Half", (), {"admit": lambda self, request: None}))

    @pytest.mark.parametrize("admit", [lambda self: None, lambda self, a, b: None, lambda *a: a])
    def test_admit_takes_the_request_alone(self, admit: Any) -> None:
        with pytest.raises(KindError, match="let it take the request alone"):
            continuous(type("Wrong", (Counting,), {"admit": admit}))

    async def test_a_request_may_be_named(self) -> None:
        async with closing(model_of()) as model:
            assert await model(work=Work("a")) == "a1"
            with pytest.raises(TypeError, match="too many positional arguments"):
                model(Work("a"), 2)
            with pytest.raises(TypeError, match="missing a required argument: 'work'"):
                model()

    def test_it_refuses_a_call_of_its_own(self) -> None:
        with pytest.raises(KindError, match="__call__ of its own"):
            continuous(type("Own", (Counting,), {"__call__": lambda self, x: x}))

    def test_preempt_and_resume_belong_together(self) -> None:
        with pytest.raises(KindError, match="belong together"):
            continuous(type("Half", (Counting,), {"preempt": lambda self, state: None}))

    def test_it_decorates_classes_only(self) -> None:
        with pytest.raises(KindError, match="decorates a class"):
            continuous(lambda: None)  # type: ignore[call-overload]

    def test_a_subclass_is_one_too(self) -> None:
        parent = continuous(type("Parent", (Counting,), {}))
        child = type("Child", (parent,), {})
        assert decorator.options_of(child) is decorator.options_of(parent)
        other = continuous(max_running=3)(type("Other", (parent,), {}))
        assert decorator.options_of(other).max_running == 3
