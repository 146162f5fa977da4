"""What a replica does when it is to end: how long user code may take, and what is left."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from pyserve.replica.loading import close
from pyserve.replica.phases import Stop, StoppedEarly
from tests.unit.batching.test_batch_queue import virtual


def now() -> float:
    return asyncio.get_running_loop().time()


class Leaving:
    """Takes its time to close, and notes what it gets done."""

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s
        self.notes: list[tuple[str, float]] = []

    async def aclose(self) -> None:
        await self._take("aclose")

    async def __del__(self) -> None:
        await self._take("__del__")

    async def _take(self, what: str) -> None:
        begun = now()
        try:
            await asyncio.sleep(self._takes_s)
        except asyncio.CancelledError:
            what += " cut"
            raise
        finally:
            self.notes.append((what, now() - begun))


@virtual
async def test_the_last_hooks_may_take_what_is_left_of_the_grace():
    leaving = Leaving(9.0)

    await close(leaving, now() + 20.0)

    assert [("aclose", 9.0), ("__del__", 9.0)] == leaving.notes


@virtual
async def test_each_of_them_has_some_seconds_also_without_grace(
    caplog: pytest.LogCaptureFixture,
):
    leaving = Leaving(9.0)

    await close(leaving, now())

    assert [("aclose cut", 5.0), ("__del__ cut", 5.0)] == leaving.notes
    assert "Leaving.aclose raised" in caplog.text


@virtual
async def test_a_step_of_the_start_is_cancelled_and_its_end_waited_for():
    stop, notes = Stop(), []

    async def step() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(3)
            notes.append("cleaned up")

    asyncio.get_running_loop().call_later(7, stop.ask)
    begun = now()
    with pytest.raises(StoppedEarly):
        await stop.unless(step(), 20.0)

    assert ["cleaned up"] == notes
    assert begun + 10 == now()
    assert begun + 27 == stop.ends_at(20.0)


@virtual
async def test_one_that_does_not_end_is_left_when_the_grace_is_over():
    stop = Stop()
    stop.ask(4.0)
    stop.ask(60.0)  # The shortest counts.
    begun = now()

    async def step() -> None:
        while now() < begun + 9:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    with pytest.raises(StoppedEarly):
        await stop.unless(step(), 20.0)

    assert begun + 4 == now()


@virtual
async def test_a_step_that_has_ended_is_not_left():
    stop = Stop()

    async def fails() -> None:
        raise LookupError("its own")

    assert 3 == await stop.unless(asyncio.sleep(1, 3))
    with pytest.raises(LookupError):
        await stop.unless(fails())
