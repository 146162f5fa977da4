"""Instances that step in a child process."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pyserve.errors import (
    DeploymentUnavailable,
    KindError,
    RequestTimeout,
    SerializationError,
)
from pyserve.request import CURRENT, Request
from pyserve.stepping import decorator
from pyserve.stepping.child import CarriedError
from pyserve.stepping.decorator import begin_steps, continuous, find_driver, load_of
from pyserve.stepping.endings import NotStarted, ended, refused
from pyserve.stepping.entries import End, Entry, Refusal
from pyserve.stepping.options import ContinuousOptions
from tests.support.waiting import eventually, wait_until
from tests.unit.stepping.models import Counting, Work, values_of
from tests.unit.stepping.processes import (
    Awaiting,
    Broken,
    Leaving,
    Narrow,
    OddRequest,
    Process,
    Raising,
    Refusing,
    Reporting,
    Threaded,
)

TIMEOUT_S = 30
pytestmark = pytest.mark.slow


@asynccontextmanager
async def stepping(model: Any) -> AsyncIterator[Any]:
    async with asyncio.timeout(TIMEOUT_S):
        await begin_steps(model)
        pid = model.pid()
        try:
            yield model
        finally:
            await decorator.close(model)
    assert not is_alive(pid)
    admitted, released = model.lines("admit") + model.lines("resume"), model.lines("release")
    assert sorted(each.split()[1] for each in admitted) == sorted(
        each.split()[1] for each in released
    ), "each state has been released once"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]


async def each_of(answer: Any) -> list[Any]:
    async with aclosing(answer):
        return [value async for value in answer]


async def last_of(answer: Any) -> Any:
    return await answer


@pytest.mark.parametrize("kind", [Process, Awaiting])
async def test_values_come_from_another_process(kind: type[Process], tmp_path: Path) -> None:
    async with stepping(kind(tmp_path)) as model:
        assert model.pid() != os.getpid()
        works = [Work(f"n{number}.", 1 + number % 9) for number in range(40)]
        found = await asyncio.gather(*(each_of(model(work)) for work in works))
        assert found == [values_of(work) for work in works]
        lasts = await asyncio.gather(*(last_of(model(work)) for work in works))
        assert lasts == [values_of(work)[-1] for work in works]
        assert not model.states, "nothing is admitted here"
        driver, load = find_driver(model), load_of(model)
        assert driver is not None
        assert load is not None
        assert (load.admitted, load.running, load.waiting) == (80, 0, 0)
        assert load.steps == sum(driver.measures.sizes.counts)
        assert sum(driver.measures.first_values.counts) >= 40


async def test_it_logs_as_its_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSERVE_LOG_ENCODING", "JSON")
    async with stepping(Threaded(tmp_path)):
        pass
    (line,) = (each for each in capfd.readouterr().err.splitlines() if "no request" in each)
    assert json.loads(line)["exc_text"].endswith("LookupError: no request")


async def test_the_loop_is_free_while_it_steps(tmp_path: Path) -> None:
    async with stepping(Process(tmp_path)) as model:
        hanging = asyncio.create_task(each_of(model(Work("hang", 1))))
        await eventually(lambda: "hanging" in model.lines())
        assert not hanging.done()
        (tmp_path / "go").touch()
        assert await hanging == ["hang1"]


@pytest.mark.parametrize("why", ["leaves", "deadline"])
async def test_who_leaves_frees_its_state(why: str, tmp_path: Path) -> None:
    async with stepping(Process(tmp_path)) as model:
        context = contextvars.copy_context()
        if why == "deadline":
            now = asyncio.get_running_loop().time()
            context.run(CURRENT.set, Request(deadline=now + 0.3))
        running = asyncio.create_task(each_of(model(Work("endless"))), context=context)
        await eventually(lambda: "admit endless" in model.lines())
        if why == "leaves":
            running.cancel()
        with pytest.raises(asyncio.CancelledError if why == "leaves" else RequestTimeout):
            await running
        await eventually(lambda: "release endless" in model.lines())


async def test_a_slow_reader_is_parked_and_loses_nothing(tmp_path: Path) -> None:
    async with stepping(Process(tmp_path)) as model:
        answer = model(Work("a", 60))
        first = await anext(answer)
        await eventually(lambda: (load := load_of(model)) and load.parked)
        assert await each_of(model(Work("b", 60))) == values_of(Work("b", 60))
        assert [first, *(await each_of(answer))] == values_of(Work("a", 60))


async def test_what_cannot_cross_fails_its_caller_alone(tmp_path: Path) -> None:
    async with stepping(Process(tmp_path)) as model:
        other = asyncio.create_task(each_of(model(Work("b", 300))))
        with pytest.raises(SerializationError, match="a value of Process cannot be pickled"):
            await each_of(model(Work("odd", 5)))
        with pytest.raises(SerializationError, match="the request cannot be pickled"):
            await model(threading.Lock())
        with pytest.raises(SerializationError, match="the request cannot be unpickled"):
            await model(OddRequest())
        assert await other == values_of(Work("b", 300))


@pytest.mark.parametrize(
    "error",
    [
        refused("M", ContinuousOptions(budget=3), Refusal.TOO_LARGE, Entry(None, cost=5)),
        refused("M", ContinuousOptions(), Refusal.FULL, Entry(None)),
        refused("M", ContinuousOptions(), Refusal.DRAINING, Entry(None)),
        *(ended("M", ContinuousOptions(), why, Entry(None)) for why in End),
    ],
    ids=repr,
)
def test_all_refusals_and_ends_cross_as_they_are(error: Exception) -> None:
    carried: Any = CarriedError(error).rebuilt()
    assert type(carried) is type(error)
    assert str(carried) == str(error)
    assert carried.code is error.code  # type: ignore[attr-defined]  # each has one


async def test_exceptions_cross_with_their_traceback(tmp_path: Path) -> None:
    async with stepping(Raising(tmp_path)) as model:
        with pytest.raises(KeyError) as caught:
            await model(Work("a"))
        assert "in step" in str(caught.value.__notes__)
        with pytest.raises(Refusing, match="nothing"):
            await model(Work("odd"))
        with pytest.raises(RuntimeError, match="Refusing: locked"):
            await model(Work("locked"))


async def test_draining_refuses_what_waits_and_lets_the_rest_end(tmp_path: Path) -> None:
    async with stepping(Process(tmp_path, hangs_with=4)) as model:
        running = [asyncio.create_task(each_of(model(Work("hang", 40)))) for _ in range(4)]
        await eventually(lambda: "hanging" in model.lines())
        waiting = asyncio.create_task(each_of(model(Work("b"))))
        await asyncio.sleep(0)
        draining = asyncio.create_task(decorator.drain(model))
        await asyncio.sleep(0)
        (tmp_path / "go").touch()
        await draining
        with pytest.raises(NotStarted):
            await waiting
        assert [await each for each in running] == [values_of(Work("hang", 40))] * 4


async def test_states_go_on_at_another_replica(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    async with (
        stepping(Process(tmp_path / "old", hangs_with=2)) as old,
        stepping(Process(tmp_path / "new")) as new,
    ):

        async def elsewhere(moved: Any, wants_each: bool) -> Any:
            async with aclosing(new(moved)) as answer:
                if not wants_each:
                    yield await answer
                    return
                async for value in answer:
                    yield value

        stream = asyncio.create_task(each_of(old(Work("hang", 90))))
        last = asyncio.create_task(last_of(old(Work("b", 90))))
        await eventually(lambda: "hanging" in old.lines())
        (new.folder / "go").touch()
        draining = asyncio.create_task(decorator.drain(old, elsewhere))
        await asyncio.sleep(0)
        (old.folder / "go").touch()
        await draining
        assert await stream == values_of(Work("hang", 90))
        assert await last == values_of(Work("b", 90))[-1]
        assert sorted(new.lines("resume")) == ["resume b", "resume hang"]


async def test_the_death_of_the_process_ends_all_calls_at_once(tmp_path: Path) -> None:
    model: Any = Narrow(tmp_path)
    told: list[Exception] = []
    async with asyncio.timeout(TIMEOUT_S):
        await begin_steps(model)
        decorator.tell_failure(model, told.append)
        running = asyncio.create_task(each_of(model(Work("hang"))))
        await eventually(lambda: (load := load_of(model)) and load.running == 1)
        waiting = asyncio.create_task(last_of(model(Work("b"))))
        await asyncio.sleep(0)
        os.kill(model.pid(), signal.SIGKILL)
        with pytest.raises(DeploymentUnavailable, match="has ended with status -9"):
            await running
        # Nothing has happened for them, so a router may send them elsewhere.
        with pytest.raises(NotStarted, match="has ended with status -9"):
            await waiting
        with pytest.raises(NotStarted):
            await model(Work("b"))
        assert [type(each) for each in told] == [DeploymentUnavailable]
        await decorator.close(model)


async def test_a_setup_that_raises_is_told(tmp_path: Path) -> None:
    model: Any = Broken(tmp_path)
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(LookupError, match="no weights") as caught:
            await begin_steps(model)
        assert "in setup" in str(caught.value.__notes__)
        await decorator.close(model)


async def test_closing_ends_what_runs(tmp_path: Path) -> None:
    async with stepping(Process(tmp_path)) as model:
        running = asyncio.create_task(each_of(model(Work("endless"))))
        await eventually(lambda: model.lines("admit"))
        await decorator.close(model)
        with pytest.raises(DeploymentUnavailable):
            await running
        assert model.lines("release") == ["release endless"]


async def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    model: Any = Process(tmp_path)
    async with asyncio.timeout(TIMEOUT_S):
        await begin_steps(model)
        running = asyncio.create_task(each_of(model(Work("hang"))))
        await eventually(lambda: "hanging" in model.lines())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await decorator.close(model)
        with pytest.raises(DeploymentUnavailable):
            await running
        await eventually(lambda: not is_alive(model.pid()))


_PARENT = """
import asyncio, os, pathlib, signal, sys
from pyserve.stepping.decorator import begin_steps
from tests.unit.stepping.models import Work
from tests.unit.stepping.processes import Process

async def main():
    model = Process(pathlib.Path(sys.argv[1]))
    await begin_steps(model)
    if sys.argv[2] == "forks":
        if (fork := os.fork()) == 0:
            while True:
                signal.pause()
        model.note(f"fork {fork}")
    async for _ in model(Work("hang")):
        pass

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["plain", "forks"])
def test_it_ends_with_its_parent_though_a_step_does_not_return(way: str, tmp_path: Path) -> None:
    """A process that the parent has forked lives on, and holds no pipe open."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path), way])
    model = Reporting(tmp_path)
    try:
        lines = tmp_path / "lines"
        wait_until(lambda: lines.exists() and "hanging" in model.lines(), timeout_s=TIMEOUT_S)
        assert is_alive(model.pid())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    try:
        wait_until(lambda: not is_alive(model.pid()), what="the child has ended")
    finally:
        for line in model.lines("fork"):
            os.kill(int(line.split()[1]), signal.SIGKILL)


def test_a_step_that_is_awaited_has_no_process() -> None:
    class Later(Counting):
        async def step(self, states: list[Any]) -> list[Any]:  # type: ignore[override]
            return super().step(states)

    with pytest.raises(KindError, match="its step is async"):
        continuous(step_in="process")(Later)


async def test_a_thread_that_fails_there_ends_the_process(tmp_path: Path) -> None:
    model: Any = Leaving(tmp_path)
    told: list[Exception] = []
    async with asyncio.timeout(TIMEOUT_S):
        await begin_steps(model)
        decorator.tell_failure(model, told.append)
        with pytest.raises(NotStarted, match="has ended with status 1"):
            await last_of(model(Work("a", 2)))
        await eventually(lambda: bool(told))
        await decorator.close(model)
