"""The reports to routers on the models of a process."""

import asyncio
import gc
from typing import Any

import pytest

from pyserve.multiplexing.cache import CacheOptions
from pyserve.multiplexing.directory import Directory
from pyserve.multiplexing.loader import Loader


class Cache:
    """Something that reports."""


def make_loader(directory: Directory, function: Any, limit: int = 3) -> Loader[Any]:
    return Loader(
        function,
        label="get",
        options=CacheOptions(max_num_models_per_replica=limit),
        size_of=lambda model: 1,
        directory=directory,
        loop=asyncio.get_running_loop(),
    )


async def test_changes_of_one_turn_are_told_once():
    directory, told = Directory(), list[list[str]]()
    directory.subscribe(told.append)
    first, second = Cache(), Cache()
    directory.report(first, ["a"])
    directory.report(first, ["a", "b"])
    directory.report(second, ["b", "c"])
    assert [] == told
    await asyncio.sleep(0)

    assert [["a", "b", "c"]] == told
    directory.report(second, ["b", "c"])
    await asyncio.sleep(0)
    assert 1 == len(told)


async def test_who_unsubscribes_is_told_no_more():
    directory, told = Directory(), list[list[str]]()
    unsubscribe = directory.subscribe(told.append)
    unsubscribe()
    unsubscribe()
    cache = Cache()
    directory.report(cache, ["a"])
    await asyncio.sleep(0)

    assert [] == told


async def test_a_cache_that_is_gone_has_no_models():
    directory = Directory()
    cache = Cache()
    directory.report(cache, ["a"])
    del cache
    gc.collect()

    assert [] == directory.models()


async def test_an_id_is_told_while_it_loads_and_taken_back_at_once_when_it_fails():
    """A replica that loads a model is as good as one that has it, until the load fails."""
    directory, told = Directory(), list[list[str]]()
    directory.subscribe(told.append)
    release = asyncio.Event()

    async def load(model_id: str) -> str:
        await release.wait()
        raise ValueError("no")

    loader = make_loader(directory, load)
    waiting = asyncio.create_task(loader.get("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [["a"]] == told
    release.set()
    with pytest.raises(ValueError, match="no"):
        await waiting
    await asyncio.sleep(0)

    assert [["a"], []] == told


async def test_an_eviction_and_the_load_that_caused_it_are_one_change():
    directory, told = Directory(), list[list[str]]()

    async def load(model_id: str) -> str:
        return model_id

    loader = make_loader(directory, load, limit=1)
    await loader.get("a")
    directory.subscribe(told.append)
    await loader.get("b")

    assert [["b"]] == told
