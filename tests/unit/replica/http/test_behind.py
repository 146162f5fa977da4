"""Middlewares before plain handlers: what they see, change, and answer themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from grpc import StatusCode
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

from pyserve import Abort, _router
from pyserve.aio import ServerSettings
from pyserve.aio._server import Server
from pyserve.replica.http import behind, plain_handler
from pyserve.replica.plain.methods import CALL, find_methods
from tests.support.waiting import eventually
from tests.unit.replica.http.serving import Client, answer_of
from tests.unit.replica.http.serving import serving as bare


class Stamped:
    """Says who it is in answers, tells the handler something, and refuses some paths."""

    def __init__(self, app: Any, name: str) -> None:
        self._app = app
        self._name = name

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def stamped(message: Any) -> None:
            if message["type"] == "http.response.start":
                stamp = (f"x-{self._name}".encode(), b"1")
                message = {**message, "headers": [*message["headers"], stamp]}
            await send(message)

        if scope["path"] == "/forbidden":
            await PlainTextResponse("not that", 403)(scope, receive, send)
            return
        scope["state"]["user"] = self._name
        await self._app(scope, receive, stamped)


async def pass_on(request: Request, call_next: Any) -> Any:
    response = await call_next(request)
    response.headers["x-base"] = "1"
    return response


@asynccontextmanager
async def serving(target: Any) -> AsyncIterator[Client]:
    """Serve a function behind three middlewares, one of which runs it in another task."""
    middlewares = [
        Middleware(Stamped, "outer"),
        Middleware(BaseHTTPMiddleware, dispatch=pass_on),
        Middleware(Stamped, "inner"),
    ]
    handler = behind(plain_handler(find_methods(target, {}, None)[CALL]), middlewares)
    server = Server(settings=ServerSettings(http=handler))
    await server.start()
    native: Any = server.native
    try:
        yield Client(native)
        await eventually(lambda: not server._endpoint.receivers, what="no request is left")
    finally:
        await server.stop(None)


async def of_body(body: dict[str, int]) -> dict[str, int]:
    return {"twice": 2 * body["number"]}


def on_a_thread(body: dict[str, int]) -> dict[str, int]:
    return {"twice": 2 * body["number"]}


async def of_request(request: Request) -> dict[str, int]:
    assert "inner" == request.state.user
    return {"twice": 2 * (await request.json())["number"]}


@pytest.mark.parametrize("handler", [of_body, on_a_thread, of_request])
@pytest.mark.parametrize("body", [b'{"number": 4}', None])
async def test_body_and_answer_pass_through_all(handler: Any, body: bytes | None) -> None:
    async with serving(handler) as client:
        call = client.begin(body)
        if body is None:
            for piece in (b'{"num', b'ber": 4}'):
                client.native.endpoint.push(_router.MESSAGE, call.token, None, piece)
            client.native.endpoint.push(_router.HALF_CLOSE, call.token, None)
        answered = await answer_of(call)
        assert (200, {"twice": 8}) == (answered.status, answered.json())
        stamps = {"x-outer", "x-base", "x-inner"}
        assert stamps == stamps & answered.headers.keys()
        assert "application/json" == answered.headers["content-type"]


async def test_one_may_answer_itself() -> None:
    async with serving(of_body) as client:
        answered = await client(b"{}", target=b"/forbidden")
        assert (403, b"not that") == (answered.status, answered.body)


async def streams() -> AsyncIterator[str]:
    for number in range(3):
        yield f"{number} "


async def responds() -> StreamingResponse:
    return StreamingResponse(streams(), 201)


@pytest.mark.parametrize(("handler", "status"), [(streams, 200), (responds, 201)])
async def test_streams_pass_piece_by_piece(handler: Any, status: int) -> None:
    async with serving(handler) as client:
        answered = await client()
        assert (status, b"0 1 2 ") == (answered.status, answered.body)
        assert "x-inner" in answered.headers


async def teapot() -> None:
    raise HTTPException(418, "short and stout")


async def aborts() -> None:
    raise Abort(StatusCode.RESOURCE_EXHAUSTED, "no more tea")


async def test_http_exceptions_pass_and_other_failures_are_the_native_sides() -> None:
    async with serving(teapot) as client:
        answered = await client()
        assert (418, b"short and stout") == (answered.status, answered.body)
        assert "x-outer" in answered.headers
    async with serving(aborts) as client:
        answered = await client()
        assert (8, b"no more tea") == (answered.code, answered.body)


async def test_without_one_the_handler_stays_as_it_is() -> None:
    handler = plain_handler(find_methods(of_body, {}, None)[CALL])
    assert handler is behind(handler, [])


@pytest.mark.parametrize("is_behind", [False, True])
async def test_the_background_task_of_a_stream_runs_when_its_client_leaves(is_behind: bool) -> None:
    done: list[str] = []

    async def bill() -> None:
        await asyncio.sleep(0)
        done.append("billed")

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0)

    async def responds() -> StreamingResponse:
        return StreamingResponse(endless(), background=BackgroundTask(bill))

    async with serving(responds) if is_behind else bare(responds) as client:
        call = client.begin()
        await eventually(lambda: any(command[0] == "write" for command in call.commands))
        await client.leave(call)
        await eventually(lambda: ("release",) in call.commands)
    assert ["billed"] == done


@pytest.mark.parametrize("is_behind", [False, True])
async def test_a_handler_is_cancelled_at_once_when_its_client_leaves(is_behind: bool) -> None:
    """Middlewares have time to end, as under ASGI; what they stand before has none."""
    began = asyncio.Event()
    ended: list[str] = []

    async def waits() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async with serving(waits) if is_behind else bare(waits) as client:
        call = client.begin()
        await began.wait()
        await client.leave(call)
        await eventually(lambda: ("release",) in call.commands)
    assert ["cancelled"] == ended
