"""The next step starts when the last one ends: no turn of the loop, and no caller, in between."""

import asyncio
from typing import Any

import pytest

import pyserve
from tests.unit.batching.test_batch_queue import virtual


class Turns:
    """Counts the turns of the running loop."""

    def __init__(self) -> None:
        self.now = 0
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


class Steps:
    """Notes what happens, with the turn in which it does; a step waits ``waits`` times."""

    def __init__(self, waits: int = 1, *, fails: bool = False) -> None:
        self.turns = Turns()
        self.events: list[tuple[str, int]] = []
        self.tasks: list[object] = []
        self.waits = waits
        self.fails = fails

    def note(self, event: str) -> None:
        self.events.append((event, self.turns.now))

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def run(self, items: list[int]) -> list[int]:
        self.note("begin")
        self.tasks.append(asyncio.current_task())
        for _ in range(self.waits):
            await asyncio.sleep(0)
        self.note("end")
        if self.fails:
            raise ValueError("no")
        return items

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def stream(self, items: list[int]) -> Any:
        self.note("begin")
        await asyncio.sleep(0)
        yield items
        self.note("end")

    async def call(self, item: int) -> int | None:
        try:
            return await self.run(item)
        except ValueError:
            return None
        finally:
            self.note("answer")

    async def read(self, item: int) -> list[int]:
        found = [result async for result in self.stream(item)]
        self.note("answer")
        return found

    async def all(self, call: Any, count: int) -> list[Any]:
        try:
            return list(await asyncio.gather(*(call(item) for item in range(count))))
        finally:
            self.turns.stop()


@pytest.mark.parametrize("fails", [False, True])
@virtual
async def test_a_step_starts_in_the_turn_in_which_the_last_one_ended(fails: bool) -> None:
    steps = Steps(fails=fails)
    results = await steps.all(steps.call, 6)
    assert ([None] * 6 if fails else list(range(6))) == results
    names = [name for name, _ in steps.events]
    assert ["begin", "end", "begin"] == names[:3]
    ends = [turn for name, turn in steps.events if name == "end"]
    begins = [turn for name, turn in steps.events if name == "begin"]
    answers = [turn for name, turn in steps.events if name == "answer"]
    assert ends[:2] == begins[1:]
    # The callers hear in the next turn, as if no step had come before them.
    assert [end + 1 for end in ends for _ in range(2)] == answers


@virtual
async def test_a_stream_of_batches_starts_in_the_turn_in_which_the_last_one_ended() -> None:
    steps = Steps()
    assert [[0], [1], [2], [3]] == await steps.all(steps.read, 4)
    first_end = next(turn for name, turn in steps.events if name == "end")
    assert first_end == [turn for name, turn in steps.events if name == "begin"][1]


@virtual
async def test_a_step_that_never_waits_answers_before_the_next_one_starts() -> None:
    """It keeps the loop to itself, and its callers would wait for the whole of the next one."""
    steps = Steps(waits=0)
    assert list(range(6)) == await steps.all(steps.call, 6)
    step = ["begin", "end", "answer", "answer"]
    assert step * 3 == [name for name, _ in steps.events]


@virtual
async def test_each_step_is_a_task_of_its_own_from_its_beginning() -> None:
    steps = Steps()
    await steps.all(steps.call, 4)
    assert 2 == len({id(task) for task in steps.tasks})
    assert asyncio.current_task() not in steps.tasks


@virtual
async def test_a_timeout_from_the_first_line_of_a_step_ends_it() -> None:
    @pyserve.batch(max_batch_size=1, batch_wait_timeout_s=0)
    async def slow(items: list[str]) -> list[str]:
        try:
            async with asyncio.timeout(0.5):
                await asyncio.sleep(60)
        except TimeoutError:
            return ["late"]
        return items

    assert ["late", "late"] == await asyncio.gather(slow("a"), slow("b"))


@virtual
async def test_what_a_step_waits_for_is_cancelled_although_its_task_has_not_had_a_turn() -> None:
    inner: list[asyncio.Task[Any]] = []

    @pyserve.batch(max_batch_size=1, batch_wait_timeout_s=0)
    async def wait(items: list[str]) -> list[str]:
        inner.append(asyncio.create_task(asyncio.sleep(60)))
        asyncio.get_running_loop().call_soon(calls[0].cancel)
        await inner[0]
        return items

    calls = [asyncio.create_task(wait("a"))]
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    await wait.drain()
    assert inner[0].cancelled()
