"""A client leaves: the ASGI application learns of it, and has time to end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pyserve import _router
from pyserve.replica.asgi import http
from pyserve.request import current_request
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeServerCall
from tests.unit.replica.asgi.serving import Served, serving

START = {"type": "http.response.start", "status": 200, "headers": []}
PIECE = {"type": "http.response.body", "body": b"x", "more_body": True}
END = {"type": "http.response.body", "body": b""}


class Child:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


async def pass_on(request: Request, call_next: Any) -> Any:
    return await call_next(request)


def relays(count: int) -> list[Middleware]:
    """Middlewares that run what is behind them in a task of their own."""
    return [Middleware(BaseHTTPMiddleware, dispatch=pass_on)] * count


async def begun(call: FakeServerCall) -> None:
    await eventually(lambda: any("write" == command[0] for command in call.commands))


async def leave(served: Served, call: FakeServerCall, reason: int = _router.CANCEL_CLIENT) -> None:
    served.cancel(call, reason)
    assert ("release",) == (await served.released(call))[-1]


@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("is_slow_reader", [False, True])
async def test_a_stream_is_closed_and_its_background_task_runs(
    layers: int, is_slow_reader: bool
) -> None:
    done: list[str] = []
    child = Child()

    async def bill() -> None:
        await asyncio.sleep(0)
        done.append("billed")

    async def tokens(_request: Request) -> Response:
        request = current_request()
        assert request is not None
        request.add_child(child)

        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x"
                    assert not child.is_cancelled, "an application that listens ends its calls"
                    await asyncio.sleep(0)
            finally:
                done.append("closed")

        return StreamingResponse(pieces(), background=BackgroundTask(bill))

    app = Starlette(routes=[Route("/", tokens, methods=["POST"])], middleware=relays(layers))
    async with serving(app) as served:
        call = served.request()
        call.room = not is_slow_reader
        await begun(call)
        await leave(served, call)
        # Starlette does not close the generator: the collector does.
        gc.collect()
        await eventually(lambda: ["billed", "closed"] == sorted(done))


@pytest.mark.parametrize("layers", [0, 1])
async def test_what_follows_an_answer_runs_though_its_client_left_before(
    layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To send the end of an answer raises nothing, and what follows it is not limited."""
    monkeypatch.setattr(http, "LEAVE_TIMEOUT_S", 0.3)
    began, go = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def record() -> None:
        began.set()
        await go.wait()
        done.append("recorded")

    async def answer(_request: Request) -> Response:
        began.set()
        await go.wait()
        return JSONResponse({}, background=BackgroundTask(record))

    app = Starlette(routes=[Route("/", answer, methods=["POST"])], middleware=relays(layers))
    async with serving(app) as served:
        call = served.request()
        await began.wait()
        served.cancel(call)
        await eventually(lambda: not served.native.endpoint.waiting)
        go.set()
        began.clear()
        go.clear()
        await began.wait()
        await asyncio.sleep(2 * http.LEAVE_TIMEOUT_S)  # What would be limited is over by then.
        go.set()
        assert [("release",)] == await served.released(call)
    assert ["recorded"] == done


async def test_a_sender_that_does_not_listen_gets_an_oserror() -> None:
    raised: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        try:
            while True:
                await send(PIECE)
        except OSError as error:
            raised.append(error)
        await send(END)

    async with serving(app) as served:
        call = served.request()
        await begun(call)
        await leave(served, call)
    assert 1 == len(raised)


async def test_a_body_of_a_known_length_ends_by_itself() -> None:
    """Starlette runs the background task of a file only after its last piece."""
    done: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"content-length", b"3")]})
        for _ in range(3):
            await send(PIECE)
        await send(END)
        done.append("the file is removed")

    async with serving(app) as served:
        call = served.request()
        call.room = False
        await begun(call)
        await leave(served, call)
    assert ["the file is removed"] == done


async def test_one_that_was_told_and_sends_on_gets_an_oserror() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        await send(PIECE)
        seen.append(await receive())
        try:
            await send(PIECE)
        except OSError:
            seen.append("OSError")

    async with serving(app) as served:
        call = served.request(b"body")
        await begun(call)
        await leave(served, call)
    assert [{"type": "http.disconnect"}, "OSError"] == seen


async def test_a_listener_that_gave_up_is_none() -> None:
    """``Request.is_disconnected`` asks so: its wait is cancelled at once."""
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        waiting = asyncio.create_task(receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await send(START)
        try:
            while True:
                await send(PIECE)
        finally:
            ended.append("sender")

    async with serving(app) as served:
        call = served.request()
        await begun(call)
        await leave(served, call)
    assert ["sender"] == ended


async def test_calls_of_an_application_that_does_not_listen_are_cancelled_at_once() -> None:
    child = Child()
    began, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = current_request()
        assert request is not None
        request.add_child(child)
        began.set()
        await go.wait()

    async with serving(app) as served:
        call = served.request()
        await began.wait()
        served.cancel(call)
        await eventually(lambda: child.is_cancelled)
        assert [] == call.commands
        go.set()
        assert [("release",)] == await served.released(call)


@pytest.mark.parametrize("is_answering", [False, True])
@pytest.mark.parametrize("reason", [_router.CANCEL_DEADLINE, _router.CANCEL_CLIENT])
async def test_a_deadline_leaves_time_to_who_answers(is_answering: bool, reason: int) -> None:
    """The router watches the deadline as well, and may leave first: as a client does."""
    ended: list[str] = []
    began = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if is_answering:
            await send(START)
            await send(PIECE)
        began.set()
        try:
            await receive()
            await asyncio.sleep(0)
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with serving(app) as served:
        call = served.request()
        call.remaining_s = 0.0
        await began.wait()
        await leave(served, call, reason)
    assert ["by itself" if is_answering else "cancelled"] == ended


async def test_the_end_of_the_server_ends_what_tidies_up() -> None:
    ended: list[str] = []
    told = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()
        told.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async with serving(app) as served:
        call = served.request()
        await eventually(lambda: call.token in served.server._endpoint.receivers)
        served.cancel(call)
        await told.wait()
        await served.server.stop(0)
    assert ["cancelled"] == ended
