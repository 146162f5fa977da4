"""The spans of continuously batched classes: of calls, and of the steps that they share."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from pyserve.observe.traces import IS_SAMPLED
from pyserve.request import CURRENT, Request
from pyserve.stepping import decorator
from pyserve.stepping.decorator import continuous
from pyserve.stepping.values import Done
from tests.support.waiting import eventually
from tests.unit.observe.traces.conftest import Kept
from tests.unit.observe.traces.fake_call import FakeCall
from tests.unit.stepping.engines import Calling
from tests.unit.stepping.models import Counting, Snapping, State, Work

TIMEOUT_S = 10


def model_of(kind: Any, **options: Any) -> Any:
    return continuous(**options)(type("Model", (kind,), {}))()


async def _asked(kept: Kept, name: str, ask: Any) -> Any:
    """Ask as a traced call does, whose span has that name."""
    call = FakeCall(name)
    context = kept.spans.serve(kept.served, call)

    async def run() -> Any:
        request = Request()
        CURRENT.set(request)
        try:
            return await ask()
        finally:
            request.end()
            call.end()

    return await asyncio.get_running_loop().create_task(run(), context=context)


async def _each(answer: Any) -> list[Any]:
    return [value async for value in answer]


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def events(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("step_in", ["thread", "loop"])
async def test_a_step_is_linked_to_the_traced_calls_in_it(kept: Kept, step_in: str):
    all_asked = threading.Event()

    class Seeing(Counting):
        def admit(self, work: Work) -> State:
            if step_in == "thread":
                assert all_asked.wait(TIMEOUT_S)
            return super().admit(work)

        def step(self, states: list[State]) -> list[Any]:
            trace.get_current_span().set_attribute("seen", IS_SAMPLED.get())
            return super().step(states)

    model = model_of(Seeing, step_in=step_in)

    async def look() -> None:
        await eventually(lambda: (driver := decorator.find_driver(model)) and driver._calls == 3)
        all_asked.set()

    async with asyncio.timeout(TIMEOUT_S):
        looking = [look()] if step_in == "thread" else []
        await asyncio.gather(
            *looking,
            _asked(kept, "first", lambda: _each(model(Work("a", 3)))),
            _asked(kept, "second", lambda: _each(model(Work("b", 3)))),
            _each(model(Work("c", 5))),
        )
        await decorator.close(model)

    calls = {each.parent and each.parent.span_id: each for each in kept.all("steps Model")}
    first, second = (calls[kept.one(name).context.span_id] for name in ("first", "second"))
    assert len(calls) == 2
    for call in (first, second):
        assert (events(call), said(call)["pyserve.steps"], said(call)["pyserve.values"]) == (
            ["admitted", "first value"],
            3,
            3,
        )
    steps = kept.all("step Model")
    shared = [each for each in steps if len(each.links) == 2]
    assert shared
    for step in steps:
        # One that no traced call has a part in has no span.
        assert set(linked(step)) <= {first.context.span_id, second.context.span_id}
        assert step.parent is not None
        assert step.parent.span_id == linked(step)[0]
        assert said(step)["seen"] is True
        assert said(step)["pyserve.step.size"] >= len(step.links)
    links = [each for step in steps for each in linked(step)]
    assert (links.count(first.context.span_id), links.count(second.context.span_id)) == (3, 3)


async def test_calls_that_are_not_traced_have_no_spans(kept: Kept):
    model = model_of(Counting)
    async with asyncio.timeout(TIMEOUT_S):
        assert await model(Work("a", 2)) == "a2"
        await decorator.close(model)
    assert kept.names() == []


async def test_steps_of_others_do_not_belong_to_the_call_that_came_first(kept: Kept):
    seen: list[tuple[bool, bool]] = []

    class Seeing(Counting):
        def step(self, states: list[State]) -> list[Any]:
            seen.append((IS_SAMPLED.get(), CURRENT.get() is not None))
            return super().step(states)

    model = model_of(Seeing)
    async with asyncio.timeout(TIMEOUT_S):
        await _asked(kept, "first", lambda: _each(model(Work("a", 1))))
        await contextvars.Context().run(asyncio.ensure_future, _each(model(Work("b", 1))))
        await decorator.close(model)
    assert seen == [(True, False), (False, False)]
    assert len(kept.all("step Model")) == 1


async def test_parking_and_preemption_are_events(kept: Kept):
    model = model_of(Snapping, slack=1, park_s=0, step_in="loop")
    async with asyncio.timeout(TIMEOUT_S):

        async def slowly() -> list[Any]:
            answer = model(Work("a", 4))
            found = [await anext(answer)]
            await _each(model(Work("b", 9)))
            return found + await _each(answer)

        assert len(await _asked(kept, "slow", slowly)) == 4
        await decorator.close(model)
    slow = next(each for each in kept.all("steps Model") if "parked" in events(each))
    assert events(slow)[:6] == [
        "admitted",
        "first value",
        "parked",
        "preempted",
        "read on",
        "admitted",
    ]


async def test_a_step_that_raises_has_failed_and_so_have_its_calls(kept: Kept):
    model = model_of(Counting, isolate=True)
    async with asyncio.timeout(TIMEOUT_S):

        async def ask() -> None:
            with pytest.raises(ValueError, match="poison"):
                await model(Work("a", 3, poison_at=2))

        await _asked(kept, "failing", ask)
        await decorator.close(model)
    call = kept.one("steps Model")
    assert (said(call)["error.type"], said(call)["pyserve.steps"]) == ("ValueError", 2)
    assert [said(each).get("error.type") for each in kept.all("step Model")] == [None, "ValueError"]
    assert not call.status.is_ok


async def test_a_call_that_is_cancelled_has_an_end(kept: Kept):
    class Silent(Counting):
        def step(self, states: list[State]) -> list[Any]:
            super().step(states)
            return [None for _ in states]

    model = model_of(Silent, step_in="loop")
    async with asyncio.timeout(TIMEOUT_S):

        async def ask() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await model(Work("a"))

        await _asked(kept, "leaving", ask)
        await decorator.drain(model)
        await decorator.close(model)
    assert said(kept.one("steps Model"))["error.type"] == "RequestCancelled"


@pytest.mark.parametrize("ends", ["by itself", "at the close"])
async def test_an_engine_that_batches_by_itself_has_no_steps(kept: Kept, ends: str):
    class Instant(Calling):
        async def admit(self, work: Work, emit: Any) -> State:
            state = State(work)
            self.states.append(state)
            if ends == "by itself":
                emit(Done(work.name))
            return state

    model = model_of(Instant)
    async with asyncio.timeout(TIMEOUT_S):
        asked = asyncio.create_task(_asked(kept, "call", lambda: _each(model(Work("a")))))
        await eventually(lambda: model.states, what="it has been admitted")
        if ends == "at the close":
            await decorator.close(model)
            await asyncio.gather(asked, return_exceptions=True)
        else:
            assert await asked == ["a"]
            await decorator.close(model)
    call = kept.one("steps Model")
    expected = [] if ends == "at the close" else ["first value"]
    assert events(call) == ["admitted", *expected]
    assert said(call).get("error.type") == (None if expected else "DeploymentUnavailable")
    assert not kept.all("step Model")
