"""Reports of a replica on the values of a continuously batched class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import pyserve
from pyserve.config import DeploymentOptions
from pyserve.replica.control_tasks import LoadCounter, LoadReporter
from pyserve.replica.step_reports import fullness, step_load
from pyserve.stepping import decorator
from pyserve.stepping.entries import Load
from pyserve.stepping.options import ContinuousOptions
from pyserve.wire.v1 import mesh_pb2
from tests.support.waiting import eventually


@pyserve.continuous(max_running=2)
class Gated:
    """Counts down, one step each time that it may."""

    def __init__(self) -> None:
        self.may_step = asyncio.Semaphore(0)

    def admit(self, request: int) -> list[int]:
        return [request]

    async def step(self, states: list[list[int]]) -> list[pyserve.Emit]:
        await self.may_step.acquire()
        for state in states:
            state[0] -= 1
        return [pyserve.Emit(1) if state[0] else pyserve.Done(0) for state in states]


@asynccontextmanager
async def gated() -> AsyncIterator[Any]:
    model = Gated()
    try:
        yield model
    finally:
        for _ in range(9):
            model.may_step.release()
        await decorator.close(model)


def told(model: object) -> mesh_pb2.StepLoad:
    found = step_load(model)
    assert found is not None
    return found


async def each(answer: Any) -> list[int]:
    return [value async for value in answer]


async def test_requests_count_as_unanswered_until_their_first_value():
    async with gated() as model:
        assert step_load(model) is None
        streamed = asyncio.ensure_future(each(model(3)))
        last = asyncio.ensure_future(_wait_last(model, 3))  # One value, and not the first.
        await eventually(lambda: step_load(model) and told(model).fullness == 1.0)
        assert 1 == told(model).unanswered
        assert 0 < told(model).unanswered_s

        model.may_step.release()
        await eventually(lambda: told(model).first_values == 1)
        assert (0, 0, 0) == (
            told(model).unanswered,
            told(model).unanswered_s,
            told(model).next_values,
        )
        assert 0 < told(model).first_value_s

        model.may_step.release()
        model.may_step.release()
        assert ([1, 1, 0], 0) == (await streamed, await last)
        assert (1, 2) == (told(model).first_values, told(model).next_values)
        assert 0 < told(model).next_value_s


async def _wait_last(model: Any, request: int) -> int:
    value: int = await model(request)
    return value


async def test_a_caller_who_leaves_is_not_waited_for():
    async with gated() as model:
        answer = model(3)
        reader = asyncio.ensure_future(each(answer))
        await eventually(lambda: step_load(model) and told(model).unanswered == 1)

        reader.cancel()
        await asyncio.wait([reader])
        await answer.aclose()

        assert 0 == told(model).unanswered


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, 0.0),
        # Twice the places do not make more requests a second where steps take twice as long.
        ({"running": 5, "step_s": 0.5, "step_least_s": 0.1, "step_most_s": 1.0}, 1.0),
        # They are, where they take no longer.
        ({"running": 5, "step_s": 1.0, "step_least_s": 1.0, "step_most_s": 1.0}, 0.5),
        ({"running": 5, "step_s": 1.5, "step_least_s": 1.1, "step_most_s": 2.0}, 2 / 3),
        ({"running": 5, "waiting": 3}, 0.8),
        # The budget is for five of these, in places for ten.
        ({"running": 2, "used": 40.0, "step_s": 0.3, "step_least_s": 0.2, "step_most_s": 1.1}, 0.8),
        ({"running": 2, "used": 40.0, "waiting": 1, "waiting_cost": 150.0}, 1.9),
    ],
)
def test_a_replica_is_full_when_more_requests_make_it_do_no_more(
    held: dict[str, Any], expected: float
):
    nothing = {"running": 0, "waiting": 0, "waiting_cost": 0.0, "used": 0.0, "step_s": 0.0}
    counts = {"parked": 0, "wait_s": 0.0, "steps": 0, "admitted": 0, "preempted": 0}
    load = Load(**{**nothing, **counts, **held})
    assert expected == pytest.approx(fullness(load, ContinuousOptions(max_running=10, budget=100)))


async def test_costs_are_reported_where_nothing_scales():
    reports: list[mesh_pb2.ReplicaLoad] = []

    async def report(load: mesh_pb2.ReplicaLoad) -> None:
        reports.append(load)

    async with gated() as model:
        streamed = asyncio.ensure_future(each(model(1)))
        options = DeploymentOptions.of({})
        async with LoadReporter(model, options, lambda: (1, 1), report):
            expected = mesh_pb2.StepCosts(running=1, waiting=0, budget=0)
            await eventually(lambda: reports and expected == reports[-1].costs)
        model.may_step.release()
        assert [0] == await streamed

    assert not reports[-1].HasField("steps")


async def test_nothing_is_reported_of_another_class_where_nothing_scales():
    async def report(load: mesh_pb2.ReplicaLoad) -> None:
        raise AssertionError(load)

    looked = 0

    def counts() -> tuple[int, int]:
        nonlocal looked
        looked += 1
        return 1, looked

    async with LoadReporter(object(), DeploymentOptions.of({}), counts, report):
        await asyncio.sleep(0)
    assert 0 == looked


def test_what_has_changed_in_the_values_is_reported():
    counter, steps = LoadCounter(), mesh_pb2.StepLoad(first_values=1, unanswered_s=1.0)
    assert counter.look(1, 1, 0.0, steps=steps) is not None
    # Waiting goes on by itself.
    assert counter.look(1, 1, 0.1, steps=mesh_pb2.StepLoad(first_values=1)) is None
    steps = mesh_pb2.StepLoad(first_values=2)
    found = counter.look(1, 1, 0.2, steps=steps)
    assert found is not None
    assert steps == found.steps
