"""An answer whose head HTTP forbids, and a request that its client has not sent to its end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeServerCall
from tests.unit.replica.asgi.serving import serving
from tests.unit.replica.asgi.test_http import FAILURE, START

LOGGER = "pyserve.replica.asgi.http"


@pytest.fixture
def forbidding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the native side refuse every head."""

    def refuse(self: FakeServerCall, status: int, headers: Any) -> bool:
        raise ValueError("header 'x-bad' has a value with characters that HTTP forbids")

    monkeypatch.setattr(FakeServerCall, "start_response", refuse)


@pytest.mark.usefixtures("forbidding")
@pytest.mark.parametrize("waits", [False, True])
async def test_a_stream_learns_that_its_head_is_refused(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    raised: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        if waits:  # As a stream does whose first piece takes a while.
            await asyncio.sleep(0.01)
        try:
            await send({"type": "http.response.body", "body": b"1", "more_body": True})
        except ValueError as error:
            raised.append(str(error))
            raise

    async with serving(app) as served:
        assert [FAILURE] == await served.released(served.request())
    assert ["header 'x-bad' has a value with characters that HTTP forbids"] == raised
    assert [(LOGGER, "POST /: the application raised ValueError")] == [
        (each.name, each.getMessage()) for each in caplog.records if each.levelno > logging.INFO
    ]


@pytest.mark.usefixtures("forbidding")
async def test_one_that_sends_no_more_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await asyncio.sleep(0.01)

    async with serving(app) as served:
        assert [FAILURE] == await served.released(served.request())
    assert "returned without an answer's end" in caplog.text
    assert "header 'x-bad' has a value" in caplog.text


@pytest.mark.parametrize("answers", [False, True])
async def test_a_client_that_leaves_amid_its_body_is_no_failure(
    answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append((await receive())["type"])
        told.append((await receive())["type"])
        if answers:  # As frameworks do before they let an exception through.
            await send({**START, "status": 500})
            await send({"type": "http.response.body", "body": b"sorry"})
        raise ConnectionError("the client is gone")

    async with serving(app) as served:
        call = served.request(None, method="POST")
        served.push(call, b"half")
        await eventually(lambda: told)
        served.cancel(call)
        receivers = served.server._endpoint.receivers
        await eventually(lambda: call.token not in receivers)
    assert ["http.request", "http.disconnect"] == told
    assert [] == [each for each in caplog.records if each.levelno > logging.INFO]


async def test_a_failure_after_a_whole_body_is_one_though_its_client_has_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append((await receive())["type"])
        told.append((await receive())["type"])
        await send({**START, "status": 500})
        await send({"type": "http.response.body", "body": b"sorry"})
        raise KeyError("lost")

    async with serving(app) as served:
        call = served.request(b"whole", method="POST")
        await eventually(lambda: told)
        served.cancel(call)
        receivers = served.server._endpoint.receivers
        await eventually(lambda: call.token not in receivers)
    assert ["http.request", "http.disconnect"] == told
    assert "the application raised KeyError" in caplog.text
