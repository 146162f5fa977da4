"""Files of plain handlers pass middlewares unread, unless one wants to see the body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

import pyserve
from pyserve.aio import ServerSettings
from pyserve.aio._server import Server
from pyserve.replica.http import behind, plain_handler
from pyserve.replica.plain.methods import CALL, find_methods
from tests.support.waiting import eventually
from tests.unit.replica.http.serving import Client, answer_of

SIZE = 100_000
CONTENT = bytes(range(200)) * (SIZE // 200)


class Reading:
    """Sees bodies: it does not pass on that the server can send files."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            assert message["type"] in {"http.response.start", "http.response.body"}
            await send(message)

        await self._app({**scope, "extensions": {}}, receive, counted)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "long.bin"
    path.write_bytes(CONTENT)
    return path


@asynccontextmanager
async def _serving(path: Path, middleware: Any) -> AsyncIterator[Client]:
    method = find_methods(lambda: pyserve.File(path), {}, None)[CALL]
    handler = behind(plain_handler(method), [Middleware(middleware)])
    server = Server(settings=ServerSettings(http=handler))
    await server.start()
    native: Any = server.native
    try:
        yield Client(native)
        await eventually(lambda: not server._endpoint.receivers, what="no request is left")
    finally:
        await server.stop(None)


@pytest.mark.parametrize("wish", [{}, {"range": "bytes=10-19"}])
async def test_a_file_passes_unread(path: Path, wish: dict[str, str]) -> None:
    async with _serving(path, GZipMiddleware) as client:
        call = client.begin(method="GET", headers={"accept-encoding": "gzip"} | wish)
        answer = await answer_of(call)
        part = (10, 10) if wish else (0, SIZE)
        assert ("send_file", *part) in call.commands
        assert str(part[1]) == answer.headers["content-length"]


@pytest.mark.parametrize("wish", [{}, {"range": "bytes=10-90000"}])
async def test_a_middleware_that_reads_bodies_reads_files(path: Path, wish: dict[str, str]) -> None:
    async with _serving(path, Reading) as client:
        answer = await client(method="GET", headers=wish)
        assert (CONTENT[10:90001] if wish else CONTENT) == answer.body
