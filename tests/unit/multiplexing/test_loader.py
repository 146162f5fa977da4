"""Who waits for a load, who ends it, and what a request keeps; in virtual time."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from benchmarks.virtual_time import run_virtual
from pyserve.errors import ModelLoadFailed, RequestTimeout, UsageError
from pyserve.multiplexing.cache import CacheOptions
from pyserve.multiplexing.directory import Directory
from pyserve.multiplexing.loader import ROOM_WAIT_S_MAX, Loader
from pyserve.request import CURRENT, Request, get_multiplexed_model_id


class Shelf:
    """A user's loader: each load takes a second, and writes down what it did."""

    def __init__(self, limit: int = 3, **options: object) -> None:
        self.events: list[str] = []
        self.fails = False
        self.error: BaseException | None = None
        self.directory = Directory()
        self.loader: Loader[Any] = Loader(
            self.load,
            label="Shelf.get",
            options=CacheOptions(max_num_models_per_replica=limit, **options),  # type: ignore[arg-type]
            size_of=len,
            directory=self.directory,
            loop=asyncio.get_running_loop(),
        )

    async def load(self, model_id: str) -> Any:
        self.events.append(f"load {model_id}")
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            self.events.append(f"cancelled {model_id}")
            raise
        if self.error is not None:
            raise self.error
        if self.fails:
            raise RuntimeError(f"no {model_id}")
        return f"model-{model_id}"


def in_request(
    function: Callable[[], Coroutine[Any, Any, Any]], request: Request
) -> "asyncio.Task[Any]":
    """Run a coroutine function as user code of ``request``, which does not end by itself."""
    context = contextvars.copy_context()
    context.run(CURRENT.set, request)
    return asyncio.get_running_loop().create_task(function(), context=context)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtual(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtual
async def test_a_model_is_loaded_once_however_many_wait():
    shelf = Shelf()
    found = await asyncio.gather(*(shelf.loader.get("a") for _ in range(100)))

    assert {"model-a"} == set(found)
    assert ["load a"] == shelf.events
    assert 1.0 == asyncio.get_running_loop().time()


@virtual
async def test_different_models_load_at_the_same_time():
    shelf = Shelf(limit=10)
    await asyncio.gather(*(shelf.loader.get(str(index)) for index in range(10)))

    assert 1.0 == asyncio.get_running_loop().time()


@virtual
async def test_loads_beyond_the_budget_wait_for_room():
    shelf = Shelf(limit=2)
    await asyncio.gather(*(shelf.loader.get(str(index)) for index in range(6)))

    assert 3.0 == asyncio.get_running_loop().time()


@virtual
async def test_a_caller_who_goes_away_does_not_end_the_load_of_others():
    shelf = Shelf()
    first, second = (asyncio.create_task(shelf.loader.get("a")) for _ in range(2))
    await settle()
    first.cancel()

    assert "model-a" == await second
    assert ["load a"] == shelf.events


@virtual
async def test_a_load_ends_when_nobody_waits_any_more():
    shelf = Shelf()
    callers = [asyncio.create_task(shelf.loader.get("a")) for _ in range(3)]
    await settle()
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    await settle()

    assert ["load a", "cancelled a"] == shelf.events
    assert [] == shelf.directory.models()
    assert (0, 0, 1) == (
        shelf.loader.stats().loading,
        shelf.loader.stats().loads,
        shelf.loader.stats().loads_cancelled,
    )


@virtual
async def test_who_comes_while_an_unwanted_load_ends_gets_a_new_one():
    shelf = Shelf()
    leaving = asyncio.create_task(shelf.loader.get("a"))
    await settle()
    leaving.cancel()
    await asyncio.sleep(0)  # The load is told, and has not ended yet.
    late = asyncio.create_task(shelf.loader.get("a"))

    assert "model-a" == await late
    assert ["load a", "cancelled a", "load a"] == shelf.events


@virtual
async def test_a_waiter_for_room_who_leaves_gives_up_his_place():
    shelf = Shelf(limit=1)
    request = Request()
    await in_request(lambda: shelf.loader.get("a"), request)
    waiting = asyncio.create_task(shelf.loader.get("b"))
    await settle()
    waiting.cancel()
    await asyncio.wait([waiting])
    request.end()
    await settle()

    assert ["load a"] == shelf.events
    assert ["a"] == shelf.directory.models()


@virtual
async def test_waiters_get_the_loaders_own_error_and_later_callers_its_memory():
    shelf = Shelf()
    shelf.fails = True
    found = await asyncio.gather(*(shelf.loader.get("a") for _ in range(3)), return_exceptions=True)
    assert ["RuntimeError('no a')"] * 3 == [repr(error) for error in found]

    with pytest.raises(ModelLoadFailed) as caught:
        await shelf.loader.get("a")
    assert (
        "Shelf.get: model 'a' failed to load: RuntimeError: no a; it is tried again by the first "
        "request after 1.0 s"
    ) == str(caught.value)
    assert ["load a"] == shelf.events

    shelf.fails = False
    await asyncio.sleep(1.0)
    assert "model-a" == await shelf.loader.get("a")


@virtual
async def test_a_loader_that_cancels_itself_has_failed():
    shelf = Shelf()

    async def give_up(model_id: str) -> Any:
        raise asyncio.CancelledError

    shelf.loader._function = give_up
    with pytest.raises(ModelLoadFailed, match="the loader cancelled itself"):
        await shelf.loader.get("a")


@virtual
async def test_a_request_keeps_its_model_until_it_ends():
    shelf = Shelf(limit=1)
    request = Request()
    await in_request(lambda: shelf.loader.get("a"), request)
    waiting = asyncio.create_task(shelf.loader.get("b"))
    await asyncio.sleep(5.0)
    assert ["load a"] == shelf.events

    request.end()
    assert "model-b" == await waiting
    assert 7.0 == asyncio.get_running_loop().time()


@virtual
async def test_a_request_that_nobody_ends_ends_with_its_last_reference():
    shelf = Shelf(limit=1)
    request = Request()
    await in_request(lambda: shelf.loader.get("a"), request)
    assert 1 == shelf.loader.stats().pinned
    del request
    await settle()

    assert 0 == shelf.loader.stats().pinned


@virtual
async def test_a_request_holds_a_model_once_however_often_it_asks():
    shelf = Shelf(limit=1)
    request = Request()

    async def ask() -> None:
        for _ in range(5):
            await shelf.loader.get("a")

    await in_request(ask, request)
    request.end()
    assert 0 == shelf.loader.stats().pinned


@virtual
async def test_a_request_can_end_in_another_thread():
    shelf = Shelf(limit=1)
    request = Request()
    await in_request(lambda: shelf.loader.get("a"), request)
    await asyncio.get_running_loop().run_in_executor(None, request.end)
    await settle()

    assert 0 == shelf.loader.stats().pinned


@virtual
async def test_asking_after_the_end_of_the_request_holds_nothing():
    """A task that the handler left behind."""
    shelf = Shelf(limit=1)
    request = Request()
    request.end()
    await in_request(lambda: shelf.loader.get("a"), request)

    assert 0 == shelf.loader.stats().pinned


@virtual
async def test_a_request_that_would_wait_for_itself_is_told_so():
    shelf = Shelf(limit=1)
    request = Request()

    async def ask_for_two() -> None:
        await shelf.loader.get("a")
        await shelf.loader.get("b")

    with pytest.raises(UsageError, match="write at least 2"):
        await in_request(ask_for_two, request)


@virtual
async def test_the_wait_for_room_is_bounded():
    shelf = Shelf(limit=1)
    request = Request()
    await in_request(lambda: shelf.loader.get("a"), request)
    with pytest.raises(ModelLoadFailed, match="every loaded model is in use for 30 s"):
        await shelf.loader.get("b")
    assert 1.0 + ROOM_WAIT_S_MAX == asyncio.get_running_loop().time()
    assert 0 == shelf.loader.stats().waiting


async def test_the_wait_for_room_ends_with_the_deadline_of_its_caller():
    """In real time, which deadlines are measured in."""
    loop = asyncio.get_running_loop()
    shelf = Shelf(limit=1)

    async def load(model_id: str) -> Any:
        return model_id

    shelf.loader._function = load
    request = Request()
    await in_request(lambda: shelf.loader.get("a"), request)
    late = Request(deadline=loop.time() + 0.02)
    with pytest.raises(RequestTimeout, match="model 'b' waited for room"):
        await in_request(lambda: shelf.loader.get("b"), late)


@virtual
async def test_a_load_belongs_to_no_callers_deadline_and_knows_its_model():
    shelf = Shelf()
    seen = []

    async def load(model_id: str) -> Any:
        request = CURRENT.get()
        assert request is not None
        seen.append((get_multiplexed_model_id(), request.request().deadline))
        return model_id

    shelf.loader._function = load
    request = Request(multiplexed_model_id="other", deadline=1e9)
    await in_request(lambda: shelf.loader.get("a"), request)

    assert [("a", None)] == seen


@virtual
async def test_a_pinned_model_survives_every_other():
    shelf = Shelf(limit=2)
    await shelf.loader.pin("a")
    for model_id in "bcd":
        await shelf.loader.get(model_id)
    assert ["a", "d"] == shelf.directory.models()

    shelf.loader.unpin("a")
    await shelf.loader.get("e")
    assert ["d", "e"] == shelf.directory.models()


@virtual
async def test_models_that_nobody_holds_fit_the_budget_of_bytes():
    """Sizes differ; "model-a" has 7 bytes."""
    shelf = Shelf(limit=-1, max_bytes=20)
    for model_id in "abc":
        await shelf.loader.get(model_id)

    assert ["b", "c"] == shelf.directory.models()
    assert 14 == shelf.loader.stats().bytes_used


@virtual
async def test_preload_loads_side_by_side():
    shelf = Shelf()
    await shelf.loader.preload(["a", "b", "c"])

    assert 1.0 == asyncio.get_running_loop().time()
    assert ["a", "b", "c"] == shelf.directory.models()
    assert 0 == shelf.loader.stats().pinned


@virtual
async def test_a_preload_that_fails_raises_the_loaders_own_error():
    shelf = Shelf()
    shelf.fails = True
    with pytest.raises(RuntimeError, match="no "):
        await shelf.loader.preload(["a", "b"])


@virtual
async def test_closing_ends_the_loads_and_fails_their_waiters():
    shelf = Shelf()
    await shelf.loader.get("a")
    waiting = asyncio.create_task(shelf.loader.get("b"))
    await settle()
    await shelf.loader.close()

    with pytest.raises(ModelLoadFailed, match="the replica stops"):
        await waiting
    assert [] == shelf.directory.models()
    assert ["load a", "load b", "cancelled b"] == shelf.events


class HostileError(Exception):
    def __str__(self) -> str:
        raise LookupError

    def __getattr__(self, name: str) -> object:
        raise LookupError(name)


@virtual
async def test_who_waits_gets_an_exception_that_cannot_be_read() -> None:
    shelf = Shelf(1)
    shelf.error = HostileError()
    with pytest.raises(HostileError):
        await shelf.loader.get("a")
    shelf.error = None
    assert "model-b" == await shelf.loader.get("b")


@virtual
async def test_an_exit_fails_its_load_and_leaves_the_loop_running() -> None:
    shelf = Shelf()
    shelf.error = SystemExit("no weights")
    with pytest.raises(ModelLoadFailed, match="model 'a' raised SystemExit: no weights"):
        await shelf.loader.get("a")
    shelf.error = None
    assert "model-b" == await shelf.loader.get("b")
