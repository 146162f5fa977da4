"""Plain HTTP requests for a function or an object, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from pyserve import _router
from pyserve.aio import ServerSettings
from pyserve.aio._server import Server
from pyserve.batching import Batched
from pyserve.replica.http import plain_handler
from pyserve.replica.plain.methods import CALL, find_methods
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeHttpHead, FakeServer, FakeServerCall

NOTHING = object()


@dataclass(frozen=True)
class Answer:
    """What a client gets; ``code`` is the grpc code of a failure that the native side words."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    code: int = 0

    def json(self) -> Any:
        return orjson.loads(self.body)


class Client:
    """Sends requests to the handler; those of one test share its server."""

    def __init__(self, native: FakeServer) -> None:
        self.native = native

    def begin(
        self, body: bytes | None = b"", *, json: Any = NOTHING, **head: Any
    ) -> FakeServerCall:
        """Let a request arrive; a body of ``None`` comes as a stream."""
        if json is not NOTHING:
            body = orjson.dumps(json)
        headers = [(k.encode(), v.encode()) for k, v in head.pop("headers", {}).items()]
        return self.native.request(body, FakeHttpHead(headers=headers, **head))

    async def __call__(self, body: bytes | None = b"", **request: Any) -> Answer:
        return await answer_of(self.begin(body, **request))

    async def leave(self, call: FakeServerCall) -> None:
        """Let the client of a request go away; returns when the loop knows."""
        self.native.endpoint.push(_router.CANCEL, call.token, _router.CANCEL_CLIENT)
        await eventually(lambda: not self.native.endpoint.waiting)


async def answer_of(call: FakeServerCall) -> Answer:
    """Wait for the end of an answer."""
    await eventually(lambda: not call.is_active())
    return written(call)


def written(call: FakeServerCall) -> Answer:
    """Return the answer as far as it was queued."""
    status, headers, body, code = 0, {}, b"", 0
    for name, *arguments in call.commands:
        if name in {"respond", "start_response"}:
            status = arguments[0]
            headers = {key.decode(): value.decode() for key, value in arguments[1]}
        if name == "respond":
            body = arguments[2]
        elif name == "write":
            body += arguments[0]
        elif name == "finish":
            code = arguments[0]
            body = body or arguments[1].encode()
    return Answer(status, headers, body, code)


@asynccontextmanager
async def serving(
    target: Any, *, batched: Mapping[str, Batched[Any]] | None = None, development: bool = False
) -> AsyncIterator[Client]:
    """Serve ``__call__`` of an object, or a function; needs the fixture ``fake_ring``."""
    method = find_methods(target, {}, batched)[CALL]
    server = Server(settings=ServerSettings(http=plain_handler(method), development=development))
    await server.start()
    native: Any = server.native
    try:
        yield Client(native)
        await eventually(lambda: not server._endpoint.receivers, what="no request is left")
    finally:
        await server.stop(None)
