"""A process's record of the time that its calls have waited."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

import pyserve
from pyserve.observe.delays import (
    PROCESS_DELAYS,
    BatchDelay,
    CallDelay,
    Delays,
    LoadDelay,
    Slowest,
    asks,
)
from pyserve.request import CURRENT, Request


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> Delays:
    """Those of this process, empty and on until the test ends."""
    monkeypatch.setattr(PROCESS_DELAYS, "is_on", True)
    for name in ("_batches", "_loads", "_calls"):
        monkeypatch.setattr(PROCESS_DELAYS, name, deque(maxlen=1000))
    return PROCESS_DELAYS


def batch(*members: str, request_id: str = "", left_at: float = 2.0) -> BatchDelay:
    return BatchDelay(
        function="Model.predict",
        reason="window",
        model_id="",
        size=len(members),
        left_at=left_at,
        ended_at=left_at + 3.0,
        failed=False,
        request_id=request_id,
        members=tuple((each, 1.0) for each in members),
    )


@pytest.mark.parametrize("scale", [1e-4, 1.0])
def test_about_one_in_a_hundred_is_among_the_slowest(scale: float):
    numbers, slowest = random.Random(7), Slowest()
    times = [numbers.lognormvariate(0, 1) * scale for _ in range(20_000)]
    for each in times[:10_000]:
        slowest.takes(each)
    taken = [each for each in times[10_000:] if slowest.takes(each)]

    assert 50 < len(taken) < 200
    assert sorted(times)[int(0.95 * len(times))] < min(taken)


def test_a_process_that_has_become_faster_tells_its_slowest_again():
    slowest = Slowest()
    for _ in range(1000):
        slowest.takes(1.0)
    taken = [slowest.takes(0.01) for _ in range(20_000)]

    assert any(taken)


def test_a_member_of_a_batch_finds_it_with_what_the_batch_has_called():
    delays = Delays()
    delays.add_batch(batch("a", "b", request_id="own"))
    delays.add_call(CallDelay("default/Store.get", "own", 2.5, 4.0, ""))
    delays.add_load(LoadDelay("Model.get_model", "big", 2.1, 2.4, "", (("own", 2.0),)))
    found = delays.of("b")

    (one,) = found["batches"]
    assert ("Model.predict", "window", 1.0, 3.0, ["a", "b"]) == (
        one["function"],
        one["reason"],
        one["waited_s"],
        one["ran_s"],
        one["members"],
    )
    (call,) = one["inside"]["calls"]
    assert ("default/Store.get", 1.5) == (call["to"], call["duration_s"])
    (load,) = one["inside"]["loads"]
    assert ("big", pytest.approx(0.4), pytest.approx(0.3)) == (
        load["model_id"],
        load["waited_s"],
        load["load_s"],
    )
    nothing: dict[str, Any] = {name: [] for name in ("batches", "loads", "calls", "stalls")}
    assert {"request_id": "c", **nothing} == delays.of("c")


def test_a_batch_that_waits_for_itself_is_told_once():
    delays = Delays()
    delays.add_batch(batch("a", request_id="b"))
    delays.add_batch(batch("b", request_id="a"))

    depth, found = 0, delays.of("a")
    while found and found["batches"]:
        depth, found = depth + 1, found["batches"][0]["inside"]
    assert 1 < depth < 10


def test_the_slowest_of_late_are_kept_and_no_more():
    delays = Delays(kept_max=10)
    for number in range(10):
        assert delays.keeps_batch(1.0)
        delays.add_batch(batch(str(number)))
    assert not delays.keeps_batch(0.5)
    assert delays.keeps_batch(5.0)
    delays.add_batch(batch("slow"))

    assert delays.of("slow")["batches"]
    assert not delays.of("0")["batches"]


class Model:
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.05)
    async def predict(self, items: list[str]) -> list[str]:
        if "bad" in items:
            raise ValueError(items)
        await self.get_model("big")
        return items

    @pyserve.multiplexed
    async def get_model(self, model_id: str) -> str:
        await asyncio.sleep(0.02)
        return model_id


async def _ask(model: Model, request_id: str, item: str = "x") -> Any:
    request = Request(request_id=request_id)
    CURRENT.set(request)
    try:
        return await model.predict(item)
    finally:
        request.end()


async def test_batches_and_loads_report_what_their_calls_have_waited(delays: Delays):
    await asyncio.gather(*(asyncio.create_task(_ask(Model(), "alone")) for _ in range(1)))
    model = Model()
    await asyncio.gather(*(asyncio.create_task(_ask(model, name)) for name in ("a", "b")))

    (alone,), (first,) = delays.of("alone")["batches"], delays.of("a")["batches"]
    assert ("window", 1, ["alone"]) == (alone["reason"], alone["size"], alone["members"])
    assert 0.05 <= alone["waited_s"]
    # A batch of one has the id of its one call.
    (load,) = delays.of("alone")["loads"]
    assert ("big", "") == (load["model_id"], load["error"])
    assert ("full", 2, ["a", "b"]) == (first["reason"], first["size"], first["members"])
    assert 0.02 <= first["inside"]["loads"][0]["load_s"] <= first["ran_s"]


async def test_a_batch_that_failed_is_kept_however_fast(
    delays: Delays, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delays, "keeps_batch", lambda _duration_s: False)
    model = Model()
    with pytest.raises(ValueError, match="bad"):
        await asyncio.create_task(_ask(model, "failed", "bad"))
    await asyncio.create_task(_ask(model, "went well"))

    assert [True] == [each["failed"] for each in delays.of("failed")["batches"]]
    assert [] == delays.of("went well")["batches"]


async def test_nothing_is_kept_where_nobody_asks():
    kept = len(PROCESS_DELAYS._batches)
    await asyncio.create_task(_ask(Model(), "unknown"))

    assert kept == len(PROCESS_DELAYS._batches)


class Asking(Request):
    """The source of a request whose client has asked, or not."""

    def __init__(self, request_id: str, *, is_asked: bool) -> None:
        super().__init__(request_id=request_id)
        self.call = SimpleNamespace(is_asked=is_asked)


@pytest.mark.parametrize("is_asked", [True, False])
async def test_a_batch_that_somebody_asks_for_is_kept_however_fast(
    delays: Delays, monkeypatch: pytest.MonkeyPatch, is_asked: bool
):
    monkeypatch.setattr(delays, "keeps_batch", lambda _duration_s: False)
    seen: list[bool] = []

    class Fast:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
        async def run(self, items: list[str]) -> list[str]:
            seen.append(asks(CURRENT.get()))
            return items

    fast = Fast()

    async def ask(request: Request) -> None:
        CURRENT.set(request)
        await fast.run("x")

    other, asking = Request(request_id="other"), Asking("asking", is_asked=is_asked)
    await asyncio.gather(*(asyncio.create_task(ask(each)) for each in (other, asking)))

    assert [is_asked] == seen
    assert is_asked == bool(delays.of("asking")["batches"])
