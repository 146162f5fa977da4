"""The spans of model loads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace

import pyserve
from pyserve.request import CURRENT, Request
from tests.support.waiting import eventually
from tests.unit.observe.traces.conftest import Kept
from tests.unit.observe.traces.fake_call import FakeCall


class Shelf:
    """Loads models when the test says so."""

    def __init__(self) -> None:
        self.may_load = asyncio.Event()
        self.loading = asyncio.Event()

    @pyserve.multiplexed(max_num_models_per_replica=1)
    async def get_model(self, model_id: str) -> str:
        self.loading.set()
        await self.may_load.wait()
        trace.get_current_span().set_attribute("seen", model_id)
        if model_id == "broken":
            raise OSError("no such file")
        return model_id


async def _ask(kept: Kept, shelf: Shelf, model_id: str, name: str) -> Any:
    """Ask for a model as a traced call does, whose span has that name."""
    call = FakeCall(name)
    context = kept.spans.serve(kept.served, call)

    async def ask() -> str:
        request = Request()
        CURRENT.set(request)
        try:
            return await shelf.get_model(model_id)
        finally:
            request.end()
            call.end()

    return await asyncio.get_running_loop().create_task(ask(), context=context)


async def test_a_load_is_one_span_that_all_who_wait_are_linked_to(kept: Kept):
    shelf = Shelf()
    first = asyncio.create_task(_ask(kept, shelf, "big", "first"))
    await shelf.loading.wait()
    second = asyncio.create_task(_ask(kept, shelf, "big", "second"))
    await asyncio.sleep(0)
    shelf.may_load.set()
    await asyncio.gather(first, second)

    load = kept.one("load Shelf.get_model")
    assert load.parent is not None
    assert kept.one("first").context.span_id == load.parent.span_id
    assert ("big", "big") == (
        (load.attributes or {})["pyserve.model_id"],
        (load.attributes or {})["seen"],
    )
    for name in ("first", "second"):
        (link,) = kept.one(name).links
        assert load.context.span_id == link.context.span_id


async def test_a_load_that_began_untraced_has_its_true_start(kept: Kept):
    shelf = Shelf()
    untraced = asyncio.create_task(shelf.get_model("big"))
    await shelf.loading.wait()
    traced = asyncio.create_task(_ask(kept, shelf, "big", "late"))
    await asyncio.sleep(0)
    shelf.may_load.set()
    await asyncio.gather(untraced, traced)

    load, late = kept.one("load Shelf.get_model"), kept.one("late")
    assert load.start_time is not None
    assert late.start_time is not None
    assert load.start_time < late.start_time


async def test_a_load_that_fails_says_why(kept: Kept):
    shelf = Shelf()
    shelf.may_load.set()
    with pytest.raises(OSError, match="no such file"):
        await _ask(kept, shelf, "broken", "asks")

    await eventually(lambda: "load Shelf.get_model" in kept.names())
    load = kept.one("load Shelf.get_model")
    assert trace.StatusCode.ERROR == load.status.status_code
    assert "OSError" == (load.attributes or {})["error.type"]


async def test_a_model_that_is_there_is_not_loaded_again(kept: Kept):
    shelf = Shelf()
    shelf.may_load.set()
    await _ask(kept, shelf, "big", "first")
    await _ask(kept, shelf, "big", "second")

    assert 1 == len(kept.all("load Shelf.get_model"))
    assert () == tuple(kept.one("second").links)
