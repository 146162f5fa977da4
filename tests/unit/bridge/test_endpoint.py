"""When an event loop hands its commands to the I/O threads."""

from __future__ import annotations

import asyncio

from pyserve.bridge import LoopEndpoint, running_endpoint
from tests.support.waiting import eventually

_TOKEN = 1 << 62  # No call has it.


class Answering:
    """Answers each event, and looks in the loop's next step how often commands were flushed."""

    def __init__(self, endpoint: LoopEndpoint) -> None:
        self.endpoint = endpoint
        self.flushes: list[int] = []

    def on_event(self, _kind: int, _subject: object, _payload: object, /) -> None:
        self.endpoint.loop.call_soon(self.look)
        self.endpoint.schedule_flush()

    def look(self) -> None:
        self.flushes.append(self.endpoint.raw.stats()["flushes"])

    def abandon(self) -> None:
        """Nobody is told."""


async def test_answers_leave_with_the_events_that_they_answer() -> None:
    endpoint = running_endpoint()
    answering = endpoint.receivers[_TOKEN] = Answering(endpoint)
    before = endpoint.raw.stats()["flushes"]

    endpoint.raw.probe(_TOKEN)

    await eventually(lambda: answering.flushes)
    assert [before + 1] == answering.flushes


async def test_what_tasks_answer_leaves_when_all_of_a_turn_have_run() -> None:
    endpoint = running_endpoint()
    before = endpoint.raw.stats()["flushes"]

    endpoint.schedule_flush()

    assert before == endpoint.raw.stats()["flushes"]
    await asyncio.sleep(0)
    assert before + 1 == endpoint.raw.stats()["flushes"]
