"""How models are let go."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

import pyserve
from pyserve.multiplexing.unloading import finalize
from tests.support.waiting import eventually


class Owner:
    def __init__(self, make: Any) -> None:
        self.make = make

    @pyserve.multiplexed(max_num_models_per_replica=1)
    async def get(self, model_id: str) -> Any:
        return self.make(model_id)


class Plain:
    """Something that can be weakly referenced."""

    def __init__(self, model_id: str) -> None:
        self.model_id = model_id


async def test_the_evicted_model_is_gone_before_the_next_one_loads():
    """Otherwise both would be in memory."""
    alive: list[weakref.ref[Plain]] = []
    seen: list[int] = []

    def make(model_id: str) -> Plain:
        seen.append(sum(ref() is not None for ref in alive))
        model = Plain(model_id)
        alive.append(weakref.ref(model))
        return model

    owner = Owner(make)
    gc.disable()
    try:
        for model_id in "abc":
            await owner.get(model_id)
    finally:
        gc.enable()

    assert [0, 0, 0] == seen


async def test_hooks_are_called_and_awaited():
    events: list[str] = []

    class Closing(Plain):
        async def aclose(self) -> None:
            await asyncio.sleep(0)
            events.append(f"closed {self.model_id}")

    class Unloading(Closing):
        def unload(self) -> None:
            name = "loop" if threading.current_thread() is threading.main_thread() else "thread"
            events.append(f"unloaded {self.model_id} in a {name}")

    await_closing, await_unloading = Owner(Closing), Owner(Unloading)
    for model_id in "ab":
        await await_closing.get(model_id)
        await await_unloading.get(model_id)

    assert ["closed a", "unloaded a in a thread"] == events


async def test_a_finalizer_runs_in_a_thread_because_it_may_be_slow():
    threads: list[threading.Thread] = []

    class Finalized(Plain):
        def __del__(self) -> None:
            threads.append(threading.current_thread())

    owner = Owner(Finalized)
    for model_id in "ab":
        await owner.get(model_id)

    await eventually(lambda: threads)
    assert threading.main_thread() is not threads[0]


async def test_a_hook_that_raises_fails_no_request(caplog):
    class Broken(Plain):
        def unload(self) -> None:
            raise ValueError("stuck")

    owner = Owner(Broken)
    await owner.get("a")

    assert "b" == (await owner.get("b")).model_id
    assert "unloading 'a' raised" in caplog.text


async def test_a_hook_that_raises_for_each_model_is_one_line_of_the_log(caplog):
    """Clients choose how many there are."""

    class Broken(Plain):
        def unload(self) -> None:
            raise ValueError(f"stuck {self.model_id}")

    owner = Owner(Broken)
    for number in range(20):
        await owner.get(str(number))

    assert 1 == len(caplog.records)


async def test_an_async_finalizer_is_awaited_once_and_python_does_not_call_it_again():
    """A second call would make a coroutine that nobody awaits, of which Python warns."""
    awaited: list[str] = []

    class Finalized(Plain):
        async def __del__(self) -> None:
            await asyncio.sleep(0)
            awaited.append(self.model_id)

    owner = Owner(Finalized)
    await owner.get("a")
    kept = await owner.get("b")
    await owner.get("c")
    await eventually(lambda: awaited == ["a", "b"])

    assert isinstance(kept, Finalized)
    del kept
    gc.collect()
    assert ["a", "b"] == awaited
    await owner.get.unload("c")
    assert ["a", "b", "c"] == awaited


async def test_a_class_that_cannot_be_derived_from_keeps_its_finalizer():
    awaited: list[str] = []

    class Final(Plain):
        def __init_subclass__(cls) -> None:
            raise TypeError("this class is final")

        async def __del__(self) -> None:
            awaited.append(self.model_id)

    models = [Final("a")]
    await finalize(models[0])

    assert ["a"] == awaited
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        models.clear()
