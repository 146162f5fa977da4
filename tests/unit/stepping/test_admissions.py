"""Ends of requests that are being admitted, with each driver."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyserve.errors import DeploymentUnavailable, RequestTimeout
from pyserve.request import CURRENT, Request
from pyserve.stepping import decorator
from pyserve.stepping.decorator import continuous, find_driver
from pyserve.stepping.options import ContinuousOptions
from pyserve.testing.driving import Arrival, drive
from tests.support.waiting import eventually
from tests.unit.stepping.engines import Calling
from tests.unit.stepping.models import Counting, Slow, State, Work, wait_admitted
from tests.unit.stepping.processes import Admitting

TIMEOUT_S = 10
WHERE = pytest.mark.parametrize("step_in", ["thread", "loop"])
INSISTS = pytest.mark.parametrize("insists", [False, True])


class SlowCalling(Calling):
    """Calls back; its admissions take a while."""

    async def admit(self, work: Work, emit: Callable[[Any], bool]) -> State:
        await wait_admitted(work)
        return await super().admit(work, emit)


def model_of(step_in: str, kind: type[Counting] = Slow) -> Any:
    return continuous(step_in=step_in, max_running=1)(type("Model", (kind,), {}))()  # type: ignore[call-overload]


def call(model: Any, work: Work, within_s: float | None = None) -> asyncio.Task[Any]:
    """Begin a call, with a deadline."""

    async def answer() -> Any:
        return await model(work)

    context = contextvars.copy_context()
    if within_s is not None:
        deadline = asyncio.get_running_loop().time() + within_s
        context.run(CURRENT.set, Request(deadline=deadline))
    return asyncio.get_running_loop().create_task(answer(), context=context)


async def until_admitting(model: Any) -> None:
    driver = find_driver(model)
    assert driver is not None
    await eventually(lambda: len(driver._admissions) == 1)


@WHERE
@INSISTS
async def test_a_cancelled_admission_frees_its_place(step_in: str, insists: bool) -> None:
    model = model_of(step_in)
    async with asyncio.timeout(TIMEOUT_S):
        hanging = call(model, Work("a", admits_s=math.inf, insists=insists))
        await asyncio.sleep(0)
        await until_admitting(model)
        following = call(model, Work("b"))
        hanging.cancel()
        assert "b1" == await following
        await decorator.close(model)
    assert 1 + insists == len(model.states)
    assert not model.held


@WHERE
@INSISTS
async def test_a_deadline_ends_an_admission(step_in: str, insists: bool) -> None:
    model = model_of(step_in)
    async with asyncio.timeout(TIMEOUT_S):
        hanging = call(model, Work("a", admits_s=math.inf, insists=insists), 0.05)
        following = call(model, Work("b"))
        with pytest.raises(RequestTimeout):
            await hanging
        assert "b1" == await following
        await decorator.close(model)
    assert not model.held


@WHERE
@INSISTS
async def test_closing_ends_an_admission(step_in: str, insists: bool) -> None:
    model = model_of(step_in)
    async with asyncio.timeout(TIMEOUT_S):
        hanging = call(model, Work("a", admits_s=math.inf, insists=insists))
        await asyncio.sleep(0)
        await until_admitting(model)
        await decorator.close(model)
        with pytest.raises(DeploymentUnavailable):
            await hanging
    assert insists == len(model.states)
    assert not model.held


@WHERE
async def test_a_drain_ends_when_an_admission_is_cancelled(step_in: str) -> None:
    model = model_of(step_in)
    async with asyncio.timeout(TIMEOUT_S):
        hanging = call(model, Work("a", admits_s=math.inf))
        await asyncio.sleep(0)
        await until_admitting(model)
        draining = asyncio.create_task(decorator.drain(model))
        hanging.cancel()
        await draining
        driver = find_driver(model)
        assert driver is not None
        await eventually(lambda: not driver._admissions)
        await decorator.close(model)


@WHERE
async def test_a_fault_of_the_driver_releases_what_comes_later(
    step_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(step_in)
    async with asyncio.timeout(TIMEOUT_S):
        hanging = call(model, Work("a", admits_s=math.inf, insists=True))
        await asyncio.sleep(0)
        await until_admitting(model)
        driver = find_driver(model)
        assert driver is not None
        monkeypatch.setattr(driver._engine, "prepare", lambda: 1 / 0)
        other = call(model, Work("b"))
        for each in (hanging, other):
            with pytest.raises(RuntimeError, match="stepping failed"):
                await each
        await eventually(lambda: [True] == [state.released for state in model.states])
        await decorator.close(model)


@INSISTS
@pytest.mark.parametrize("ends", [{"leaves_s": 0.5}, {"deadline_s": 0.5}])
def test_an_engine_that_calls_back(ends: dict[str, Any], insists: bool) -> None:
    model = SlowCalling()
    hanging = Arrival(request=Work("a", admits_s=math.inf, insists=insists), **ends)
    driven = drive(model, [hanging, Work("b")], options=ContinuousOptions(max_running=1))
    assert [0.5, 1.5] == [each.ended_s for each in driven.outcomes]
    assert ["b1"] == driven.outcomes[1].values
    assert 1 + insists == len(model.states)
    assert not model.held


@pytest.mark.slow
@INSISTS
async def test_an_admission_in_a_process(tmp_path: Path, insists: bool) -> None:
    model = Admitting(tmp_path)
    async with asyncio.timeout(3 * TIMEOUT_S):
        await decorator.begin_steps(model)
        left, late = (Work(name, admits_s=math.inf, insists=insists) for name in "ab")
        leaving = call(model, left)
        await eventually(lambda: ["begin a"] == model.lines("begin"))
        leaving.cancel()
        expiring, following = call(model, late, 1.0), call(model, Work("c"))
        with pytest.raises(RequestTimeout):
            await expiring
        assert "c1" == await following
        await decorator.close(model)
    admitted = [line.split()[1] for line in model.lines("admit")]
    released = [line.split()[1] for line in model.lines("release")]
    assert sorted("abc" if insists else "c") == sorted(admitted) == sorted(released)
