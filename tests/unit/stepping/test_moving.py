"""States of a replica that drains go on at another one: here, another instance on the same loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from pyserve.errors import DeploymentUnavailable, KindError, RequestTimeout
from pyserve.request import CURRENT, Request
from pyserve.stepping import decorator, moving
from pyserve.stepping.decorator import continuous, find_driver, load_of
from pyserve.stepping.drivers import ThreadDriver
from pyserve.stepping.endings import NotStarted
from pyserve.stepping.moving import Moved
from tests.support.waiting import eventually, wait_until
from tests.unit.stepping.models import Counting, Snapping, State, Work, values_of

TIMEOUT_S = 10
STEP_IN = pytest.mark.parametrize("step_in", ["thread", "loop"])


class Beginning(Snapping):
    """One whose snapshots are refused, so that requests begin again."""

    def preempt(self, state: State) -> Any:
        super().preempt(state)
        return None


class Held(Snapping):
    """One that makes so many steps for a request and then none until it is told to."""

    most = 3
    is_free = False

    def step(self, states: list[State]) -> list[Any]:
        if not self.is_free and all(state.made >= self.most for state in states):
            return [None for _ in states]
        return super().step(states)


def model_of(kind: Any, **options: Any) -> Any:
    made = type("Model", (kind,), {})
    return continuous(resume_elsewhere=True, **options)(made)()


async def _each(answer: Any) -> list[Any]:
    async with aclosing(answer):
        return [value async for value in answer]


class Elsewhere:
    """Sends requests to another instance, and counts them."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.moves: list[Moved] = []
        self.failure: Exception | None = None

    async def __call__(self, moved: Moved, wants_each: bool) -> AsyncGenerator[object]:
        self.moves.append(moved)
        if self.failure is not None:
            raise self.failure
        answer = self.model(moved)
        try:
            if not wants_each:
                yield await answer
                return
            async for value in answer:
                yield value
        finally:
            await answer.aclose()


async def held(model: Any, count: int) -> None:
    """Wait until so many states have made the steps that are possible."""
    await eventually(lambda: len([s for s in model.held if s.made >= model.most]) == count)


async def close(*models: Any) -> None:
    for model in models:
        await decorator.close(model)
        assert not model.held, "every state has been released"


@STEP_IN
@pytest.mark.parametrize("kind", [Snapping, Beginning])
async def test_streams_and_last_values_go_on_elsewhere(step_in: str, kind: type[Snapping]) -> None:
    old = model_of(type("Old", (Held, kind), {"preempt": kind.preempt}), step_in=step_in)
    new = model_of(kind, step_in=step_in)
    elsewhere = Elsewhere(new)
    works = [Work(f"n{number}.", 20) for number in range(8)]
    async with asyncio.timeout(TIMEOUT_S):
        streams = [asyncio.create_task(_each(old(work))) for work in works]
        lasts = [asyncio.ensure_future(_awaited(old(work))) for work in works]
        await held(old, 16)
        await decorator.drain(old, elsewhere)
        assert [await each for each in streams] == [values_of(work) for work in works]
        assert [await each for each in lasts] == [values_of(work)[-1] for work in works]
        assert not old.held
        assert len(elsewhere.moves) == 16
        assert new.resumed == (16 if kind is Snapping else 0)
        await close(old, new)


async def _awaited(answer: Any) -> Any:
    return await answer


@STEP_IN
async def test_what_has_not_been_admitted_is_refused_and_the_rest_moves(step_in: str) -> None:
    old, new = model_of(Held, step_in=step_in, max_running=1), model_of(Snapping)
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(_each(old(Work("a", 9))))
        await held(old, 1)
        waiting = asyncio.create_task(_each(old(Work("b", 9))))
        await eventually(lambda: (load := load_of(old)) and load.waiting)
        await decorator.drain(old, Elsewhere(new))
        with pytest.raises(NotStarted):
            await waiting
        assert await running == values_of(Work("a", 9))
        await close(old, new)


@STEP_IN
@pytest.mark.parametrize("why", ["nobody", "size", "pickle", "hops"])
async def test_one_that_nobody_takes_goes_on_here(
    step_in: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = model_of(Held, step_in=step_in), model_of(Snapping)
    elsewhere = Elsewhere(new)
    work: Any = Work("a", 9)
    expected = values_of(work)
    if why == "nobody":
        elsewhere.failure = DeploymentUnavailable("no other replica")
    elif why == "size":
        monkeypatch.setattr(moving, "SNAPSHOT_BYTES_MAX", 10)
    elif why == "pickle":
        monkeypatch.setattr(
            type(old), "preempt", lambda self, state: (state.work, _Odd(state.made))
        )
    async with asyncio.timeout(TIMEOUT_S):
        asked = work
        if why == "hops":
            asked = Moved(request=work, snapshot=(work, 0), skip=0, last=(), hops=moving.HOPS_MAX)
        running = asyncio.create_task(_each(old(asked)))
        await held(old, 1)
        old.is_free = True
        await decorator.drain(old, elsewhere)
        assert await running == expected
        assert len(elsewhere.moves) == (1 if why == "nobody" else 0)
        assert old.resumed == 1
        assert (why == "hops") or "goes on here, and not at another" in caplog.text
        await close(old, new)


class _Odd(int):
    """A number that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("it cannot be pickled")


@STEP_IN
async def test_a_failure_after_the_first_value_fails_the_call(step_in: str) -> None:
    old, new = model_of(Held, step_in=step_in), model_of(Snapping)
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(_each(old(Work("a", 9, fails_at=6))))
        await held(old, 1)
        await decorator.drain(old, Elsewhere(new))
        with pytest.raises(KeyError):
            await running
        await close(old, new)


@STEP_IN
async def test_a_slow_reader_holds_its_state_up_elsewhere(step_in: str) -> None:
    old = model_of(Held, step_in=step_in, slack=2)
    new = model_of(Snapping, slack=2, park_s=None)
    async with asyncio.timeout(TIMEOUT_S):
        answer = old(Work("a", 40))
        first = await anext(answer)
        await held(old, 1)
        draining = asyncio.create_task(decorator.drain(old, Elsewhere(new)))
        await eventually(lambda: (load := load_of(new)) and load.parked)
        assert new.held[0].made < 12
        assert [first, *(await _each(answer))] == values_of(Work("a", 40))
        await draining
        await close(old, new)


@STEP_IN
@pytest.mark.parametrize("why", ["leaves", "deadline", "close"])
async def test_the_end_of_a_moved_call_frees_its_state_elsewhere(step_in: str, why: str) -> None:
    old, new = model_of(Held, step_in=step_in), model_of(Held)
    new.most = 5
    async with asyncio.timeout(TIMEOUT_S):
        context = contextvars.copy_context()
        if why == "deadline":
            now = asyncio.get_running_loop().time()
            context.run(CURRENT.set, Request(deadline=now + 0.5))
        running = asyncio.create_task(_each(old(Work("a", 9))), context=context)
        await held(old, 1)
        draining = asyncio.create_task(decorator.drain(old, Elsewhere(new)))
        await held(new, 1)
        if why == "leaves":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        elif why == "close":
            await close(old)
            with pytest.raises(DeploymentUnavailable):
                await running
        else:
            with pytest.raises(RequestTimeout):
                await running
        await draining
        await eventually(lambda: not new.held, what="its state has been released")
        await close(old, new)


async def test_without_the_option_states_stay() -> None:
    old: Any = continuous(type("Model", (Held,), {}))()
    elsewhere = Elsewhere(None)
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(_each(old(Work("a", 9))))
        await held(old, 1)
        old.is_free = True
        await decorator.drain(old, elsewhere)
        assert await running == values_of(Work("a", 9))
        assert not elsewhere.moves
        await close(old)


async def test_one_moved_twice_loses_nothing() -> None:
    first, second, third = model_of(Held), model_of(Held), model_of(Snapping)
    second.most = 6
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(_each(first(Work("a", 9))))
        await held(first, 1)
        draining = asyncio.create_task(decorator.drain(first, Elsewhere(second)))
        await held(second, 1)
        onward = Elsewhere(third)
        await decorator.drain(second, onward)
        await draining
        assert await running == values_of(Work("a", 9))
        assert [each.hops for each in onward.moves] == [2]
        assert find_driver(third) is not None
        await close(first, second, third)


def test_it_needs_snapshots() -> None:
    with pytest.raises(KindError, match="resume_elsewhere needs preempt and resume"):
        model_of(Counting)


async def test_one_that_goes_on_here_may_do_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    old, elsewhere = model_of(Held), Elsewhere(None)
    elsewhere.failure = DeploymentUnavailable("no other replica")
    post = ThreadDriver._post

    def post_and_wait(self: ThreadDriver, command: Any) -> None:
        post(self, command)
        if elsewhere.moves:  # The thread that steps takes it while this one is still here.
            wait_until(lambda: old.resumed)

    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(_each(old(Work("a", 9))))
        await held(old, 1)
        old.is_free = True
        monkeypatch.setattr(ThreadDriver, "_post", post_and_wait)
        await decorator.drain(old, elsewhere)
        assert await running == values_of(Work("a", 9))
        await close(old)
