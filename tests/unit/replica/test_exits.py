"""What user code raises to leave fails what was asked of it, and does not end the loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import pyserve
from pyserve.errors import BatchError, ModelLoadFailed
from pyserve.interrupts import is_ctrl_c
from pyserve.replica.hooks import Hook, HookFailed
from pyserve.replica.loading import LoadError, _attempt, reconfigure, warm_up
from pyserve.routing.policies import Chooser


class OwnExit(BaseException):
    """As test frameworks and schedulers have them."""


EXITS = [SystemExit(3), KeyboardInterrupt("3"), OwnExit("3")]


@pytest.fixture(autouse=True)
def handled_interrupts() -> Iterator[None]:
    """SIGINT has a handler, as in a replica."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=EXITS, ids=lambda each: type(each).__name__)
def leaving(request: pytest.FixtureRequest) -> BaseException:
    error: BaseException = request.param
    return error


class Leaves:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def step(self, *_: object) -> Any:
        raise self._error

    async def reconfigure(self, *_: object) -> Any:
        raise self._error

    warmup = reconfigure

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def batched(self, items: list[int]) -> list[int]:
        if 0 in items:
            raise self._error
        return items

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def stream(self, items: list[int]) -> AsyncIterator[list[int]]:
        yield items
        raise self._error


async def test_a_batch_fails_and_the_next_one_runs(leaving: BaseException) -> None:
    model: Any = Leaves(leaving)
    name = type(leaving).__name__
    failed = await asyncio.gather(model.batched(0), model.batched(1), return_exceptions=True)
    assert [BatchError, BatchError] == [type(error) for error in failed]
    assert name in str(failed[0])
    stream = model.stream(1)
    assert 1 == await anext(stream)
    with pytest.raises(BatchError, match=name):
        await anext(stream)
    assert 2 == await model.batched(2)


@pytest.mark.parametrize("step", [reconfigure, warm_up])
async def test_a_replica_that_does_not_come_up_says_why(step: Any, leaving: BaseException) -> None:
    given: Any = ({"a": 1},) if step is reconfigure else ()
    named: Any = {"timeout_s": 30} if step is reconfigure else {}
    with pytest.raises(LoadError, match=rf"{type(leaving).__name__}: 3"):
        await step(Leaves(leaving), *given, **named)
    with pytest.raises(LoadError, match=rf"raised: {type(leaving).__name__}: 3"):
        _attempt("the constructor raised", Leaves(leaving).step)


async def test_a_load_that_is_cancelled_stays_cancelled() -> None:
    class Waits:
        async def warmup(self) -> None:
            await asyncio.Event().wait()

    task = asyncio.create_task(warm_up(Waits()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(LoadError, match="CancelledError"):
        await warm_up(Leaves(asyncio.CancelledError()))


async def test_a_hook_fails(leaving: BaseException) -> None:
    for method in (Leaves(leaving).step, Leaves(leaving).reconfigure):
        with pytest.raises(HookFailed, match=f"raised {type(leaving).__name__}: 3"):
            await Hook(method, lambda _: None, timeout_s=30).ask()


def test_a_policy_is_passed_over() -> None:
    class Policy:
        def choose(self, *_: object) -> None:
            raise KeyboardInterrupt

    raw: Any = [("a", "b", "", 0, {})]
    assert [] == Chooser("mine", Policy())(raw, "", "", "")


async def test_a_loader_fails_its_model() -> None:
    async def load(_model_id: str) -> str:
        raise KeyboardInterrupt("3")

    with pytest.raises(ModelLoadFailed, match="raised KeyboardInterrupt: 3"):
        await pyserve.multiplexed(load)("a")


def test_ctrl_c_ends_a_process_that_leaves_it_to_python() -> None:
    assert not is_ctrl_c(KeyboardInterrupt())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert is_ctrl_c(KeyboardInterrupt())
    assert not is_ctrl_c(SystemExit())
