"""What a launcher tells, kept until somebody asks: in order, and bounded."""

from __future__ import annotations

import asyncio
import socket

from pyserve.launch import Ended, Events, Waiting
from pyserve.launch.on_ray.messages import UNREAD_BYTES_MAX, OutputLines, Stop, receive, send
from pyserve.types import ReplicaId

ONE, OTHER = ReplicaId("Echo#1"), ReplicaId("Echo#2")
TIMEOUT_S = 20.0


async def test_of_each_kind_the_last_one_of_a_replica_is_kept() -> None:
    events = Events()
    for number in range(10_000):
        events.put(Waiting(ONE, f"{number}"))
        events.put(Waiting(OTHER, f"{number}"))
    assert 2 == len(events)
    events.put(Ended(ONE, "ended"))
    events.close()

    assert [Waiting(ONE, "9999"), Waiting(OTHER, "9999"), Ended(ONE, "ended")] == [
        event async for event in events
    ]


async def test_who_waits_is_told_and_each_event_is_taken_once() -> None:
    events = Events()
    takers = [asyncio.ensure_future(anext(events)) for _ in range(2)]
    await asyncio.sleep(0)
    events.put(Ended(ONE, "first"))
    async with asyncio.timeout(TIMEOUT_S):
        done, left = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
        events.put(Ended(OTHER, "second"))
        await asyncio.wait(left)
    assert {ONE, OTHER} == {each.result().replica_id for each in (*done, *left)}


async def test_one_that_does_not_read_is_let_go_of() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    message = OutputLines(ONE, ["x" * (1 << 20)])
    with theirs:
        sent = 0
        while not writer.transport.is_closing():
            send(writer, message)
            sent += 1
            assert sent < 100
        assert sent > UNREAD_BYTES_MAX >> 20
        async with asyncio.timeout(TIMEOUT_S):
            assert await receive(reader) is None
        send(writer, Stop(ONE, 0.0))
