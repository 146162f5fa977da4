"""WebSockets that take all places of a replica are told, since other requests wait for them."""

from __future__ import annotations

import pytest
from wsproto import events

from tests.unit.replica.asgi.serving import Served, serving
from tests.unit.replica.asgi.test_websocket import Client, Echo


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "WebSockets have every place" in each]


async def _opened(served: Served) -> Client:
    client = Client(served)
    await client.accepted()
    return client


async def _leave(*clients: Client) -> None:
    for client in clients:
        client.send(events.CloseConnection(code=1000))
        await client.served.released(client.call)


async def test_the_one_that_takes_the_last_place_is_told_and_the_next_one_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Echo()) as served:
        served.application.set_places(2)
        first = await _opened(served)
        assert [] == _told(caplog)
        second = await _opened(served)
        (line,) = _told(caplog)
        assert "of this replica (max_ongoing_requests=2): other requests wait" in line
        # Clients come and go: a line a minute is enough.
        await _leave(second)
        third = await _opened(served)
        assert [line] == _told(caplog)
        await _leave(first, third)


async def test_a_limit_that_is_lowered_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Echo()) as served:
        client = await _opened(served)
        served.application.set_places(2)
        assert [] == _told(caplog)
        served.application.set_places(1)
        assert 1 == len(_told(caplog))
        await _leave(client)
