"""Who gets the records of finished calls, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pyserve.routing.records import Records
from tests.support.waiting import eventually


class Waiting:
    """Records that wait, oldest first; counts how often they were asked for."""

    def __init__(self, count: int = 0) -> None:
        self.waiting = list(range(count))
        self.asked = 0

    def take(self, limit: int) -> list[int]:
        self.asked += 1
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken


class Listener:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def __call__(self, records: Sequence[int]) -> None:
        self.heard += records


async def test_every_listener_hears_of_every_record_in_order():
    source, first, second = Waiting(1300), Listener(), Listener()
    records = Records(source)
    records.listen(first)
    records.listen(second, is_lazy=True)

    assert 1300 == records.take_now()
    assert list(range(1300)) == first.heard == second.heard


async def test_records_are_taken_while_somebody_needs_each():
    source, listener = Waiting(3), Listener()
    records = Records(source)
    following = asyncio.create_task(records.follow())
    end = records.listen(listener)
    await eventually(lambda: [0, 1, 2] == listener.heard)
    source.waiting = [3]
    await eventually(lambda: [0, 1, 2, 3] == listener.heard)
    end()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_nothing_is_taken_for_those_who_only_look():
    source, listener = Waiting(3), Listener()
    records = Records(source)
    following = asyncio.create_task(records.follow())
    records.listen(listener, is_lazy=True)
    for _ in range(10):  # Turns of the loop, in which it could have asked.
        await asyncio.sleep(0)

    assert (0, []) == (source.asked, listener.heard)
    assert 3 == records.take_now()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_came_last_is_handed_over_at_the_end():
    source, listener = Waiting(), Listener()
    records = Records(source)
    records.listen(listener)
    following = asyncio.create_task(records.follow())
    await eventually(lambda: source.asked > 0)
    source.waiting = [7]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    assert [7] == listener.heard


async def test_a_listener_that_fails_takes_nothing_from_the_others():
    def fails(_records: Sequence[int]) -> None:
        raise RuntimeError("no room")

    source, listener = Waiting(2), Listener()
    records = Records(source)
    records.listen(fails)
    records.listen(listener)
    records.take_now()

    assert [0, 1] == listener.heard


class Flood(Waiting):
    """More come as soon as some are taken."""

    def take(self, limit: int) -> list[int]:
        self.asked += 1
        return list(range(limit))


async def test_calls_that_end_faster_than_they_are_taken_leave_the_loop_its_turns():
    source, listener = Flood(), Listener()
    records = Records(source)
    records.listen(listener)
    assert 4096 == records.take_now()

    following = asyncio.create_task(records.follow())
    asked: list[int] = []
    while len(asked) < 8:
        await asyncio.sleep(0)
        if not asked or asked[-1] != source.asked:
            asked.append(source.asked)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert asked == list(range(asked[0], asked[0] + 8))
