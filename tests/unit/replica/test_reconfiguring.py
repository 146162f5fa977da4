"""How a replica takes another ``user_config`` on while it serves."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pyserve.replica.loading import LoadError, reconfigure
from pyserve.replica.phases import Reconfigurer
from pyserve.wire.v1 import mesh_pb2


class Tuned:
    def __init__(self) -> None:
        self.configs: list[Any] = []
        self.gate = asyncio.Event()

    async def reconfigure(self, config: Any) -> None:
        self.configs.append(config)
        if config == "wait":
            await self.gate.wait()
        if config == "bad":
            raise ValueError("no number")
        if config == "exit":
            raise SystemExit(3)


def wanted(number: int, config: object) -> mesh_pb2.Reconfigure:
    return mesh_pb2.Reconfigure(config=number, user_config_json=json.dumps(config))


class Reports:
    """The reports to the controller."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[mesh_pb2.Reconfigured] = asyncio.Queue()

    async def __call__(self, outcome: mesh_pb2.Reconfigured) -> None:
        await self._told.put(outcome)

    async def next(self) -> tuple[int, str]:
        outcome = await asyncio.wait_for(self._told.get(), 30)
        return outcome.config, outcome.summary


def reconfigurer(tuned: object, reports: Reports, timeout_s: float = 60.0) -> Reconfigurer:
    return Reconfigurer(tuned, timeout_s=timeout_s, config=0, report=reports)


async def test_the_last_one_that_waits_counts() -> None:
    tuned, reports = Tuned(), Reports()
    async with reconfigurer(tuned, reports) as taking:
        taking.take(wanted(1, "wait"))
        await asyncio.sleep(0)
        taking.take(wanted(2, "left out"))
        taking.take(wanted(3, "last"))
        tuned.gate.set()
        assert (1, "") == await reports.next()
        assert (3, "") == await reports.next()
    assert ["wait", "last"] == tuned.configs


async def test_the_same_one_is_answered_again_without_a_call() -> None:
    tuned, reports = Tuned(), Reports()
    async with reconfigurer(tuned, reports) as taking:
        for _ in range(2):
            taking.take(wanted(1, "once"))
            assert (1, "") == await reports.next()
    assert ["once"] == tuned.configs


@pytest.mark.parametrize(("config", "text"), [("bad", "ValueError: no number"), ("exit", "3")])
async def test_a_refusal_says_where_and_why_and_the_next_one_is_taken(
    config: str, text: str
) -> None:
    tuned, reports = Tuned(), Reports()
    async with reconfigurer(tuned, reports) as taking:
        taking.take(wanted(1, config))
        number, summary = await reports.next()
        assert 1 == number
        assert "Tuned.reconfigure (" in summary
        assert text in summary
        taking.take(wanted(2, "good"))
        assert (2, "") == await reports.next()


async def test_one_that_hangs_is_a_refusal() -> None:
    reports = Reports()
    async with reconfigurer(Tuned(), reports, timeout_s=0.05) as taking:
        taking.take(wanted(1, "wait"))
        number, summary = await reports.next()
    assert 1 == number
    assert "took longer than 0.05 s" in summary


async def test_nothing_is_called_after_the_end() -> None:
    tuned, reports = Tuned(), Reports()
    async with reconfigurer(tuned, reports) as taking:
        taking.take(wanted(1, "wait"))
        await asyncio.sleep(0)
    taking.take(wanted(2, "late"))
    await asyncio.sleep(0)
    assert ["wait"] == tuned.configs


async def test_a_class_without_the_method_is_named() -> None:
    await reconfigure(object(), None, timeout_s=1)
    with pytest.raises(LoadError, match=r"there is no object\.reconfigure for the user_config"):
        await reconfigure(object(), {"a": 1}, timeout_s=1)
