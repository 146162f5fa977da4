"""Files that applications let the server send: ``http.response.pathsend``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pyserve import _router
from tests.support.waiting import eventually
from tests.unit.replica.asgi.serving import serving

START = {"type": "http.response.start", "status": 200, "headers": []}
LENGTH = (b"content-length", b"10")
END = ("finish", 0, "", (), None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of ten bytes."""
    path = tmp_path / "digits.txt"
    path.write_bytes(b"0123456789")
    return path


def _app(path: Path, *headers: tuple[bytes, bytes], go: asyncio.Event | None = None) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert {"http.response.pathsend": {}} == scope["extensions"]
        await send({**START, "headers": list(headers)})
        if go is not None:
            await go.wait()
        await send({"type": "http.response.pathsend", "path": str(path)})

    return app


async def test_a_file_is_announced_with_its_length(path: Path) -> None:
    async with serving(_app(path)) as served:
        commands = await served.released(served.request(method="GET"))
        assert [("start_response", 200, (LENGTH,)), ("send_file", 0, 10), END] == commands


async def test_no_more_than_announced_is_sent(path: Path) -> None:
    async with serving(_app(path, (b"content-length", b"4"))) as served:
        commands = await served.released(served.request(method="GET"))
        assert ("send_file", 0, 4) == commands[1]


async def test_less_than_announced_is_a_failure(path: Path) -> None:
    async with serving(_app(path, (b"content-length", b"11"))) as served:
        ((name, status, *_),) = await served.released(served.request(method="GET"))
        assert ("respond", 500) == (name, status)


async def test_a_head_that_has_left_is_followed_by_the_file(path: Path) -> None:
    go = asyncio.Event()
    async with serving(_app(path, go=go)) as served:
        call = served.request(method="GET")
        await eventually(lambda: call.commands)
        go.set()
        commands = await served.released(call)
        assert [("start_response", 200, ()), ("send_file", 0, 10), END] == commands


async def test_head_is_answered_with_the_length_alone(path: Path) -> None:
    async with serving(_app(path)) as served:
        commands = await served.released(served.request(method="HEAD"))
        assert [("respond", 200, (LENGTH,), b"")] == commands


async def test_a_file_that_is_missing_is_a_failure(path: Path) -> None:
    async with serving(_app(path.parent / "missing")) as served:
        ((name, status, *_),) = await served.released(served.request(method="GET"))
        assert ("respond", 500) == (name, status)


async def test_the_message_returns_when_the_file_was_sent(path: Path) -> None:
    async with serving(_app(path)) as served:
        call = served.request(method="GET")
        call.room = False
        await eventually(lambda: ("send_file", 0, 10) in call.commands)
        await asyncio.sleep(0)
        assert END not in call.commands
        call.room = True
        served.native.endpoint.push(_router.WRITABLE, call.token)
        assert END == (await served.released(call))[-1]


async def test_a_file_that_breaks_off_aborts_the_answer(path: Path) -> None:
    async with serving(_app(path)) as served:
        call = served.request(method="GET")
        call.file_error = "the file ends at 3, it has become shorter"
        assert ("finish", 13) == (await served.released(call))[-1][:2]


async def test_starlette_leaves_its_files_to_the_server(path: Path) -> None:
    done = asyncio.Event()

    async def respond(request: Any) -> FileResponse:
        return FileResponse(path, background=BackgroundTask(done.set))

    async def pass_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    routes = [Route("/file", respond), Mount("/static", StaticFiles(directory=path.parent))]
    middlewares = [Middleware(GZipMiddleware), Middleware(BaseHTTPMiddleware, dispatch=pass_on)]
    async with serving(Starlette(routes=routes, middleware=middlewares)) as served:
        for target in ("/file", "/static/digits.txt"):
            call = served.request(method="GET", target=target.encode())
            assert ("send_file", 0, 10) in await served.released(call)
    assert done.is_set()
