"""What an ASGI application raises is an event of the span of its request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from opentelemetry import trace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from pyserve.aio import ServerSettings
from pyserve.aio._server import Server
from pyserve.replica.asgi import AsgiApplication
from tests.support.waiting import eventually
from tests.unit.observe.traces.conftest import Kept

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def answer_of(app: Any, path: str = "/") -> int:
    """Return the status of the answer to a sampled request."""
    application = AsgiApplication(app)
    await application.startup()
    server = Server(
        settings=ServerSettings(http=application.handle), options=(("pyserve.doors", 1),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
            headers = {"traceparent": TRACEPARENT}
            found = await client.get(f"http://127.0.0.1:{port}{path}", headers=headers)
            return found.status_code
    finally:
        await server.stop(0)
        await application.shutdown()


async def raising(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        raise ValueError("it has none")
    raise LookupError("no tea")


async def breaking_off(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        raise ValueError("it has none")
    await send({"type": "http.response.start", "status": 500, "headers": []})
    raise LookupError("no tea")


def _raise(_request: Any) -> Response:
    raise LookupError("no tea")


def _refuse(_request: Any) -> Response:
    raise HTTPException(404, "no tea")


framework = Starlette(routes=[Route("/raise", _raise), Route("/refuse", _refuse)])


@pytest.mark.parametrize(
    ("app", "path"),
    # The framework answers, and lets the exception through when the span has ended.
    [(raising, "/"), (framework, "/raise")],
)
async def test_it_is_an_event_of_the_request_that_failed(kept: Kept, app: Any, path: str):
    assert 500 == await answer_of(app, path)
    await eventually(kept.names)
    span = kept.one("GET /")
    (event,) = span.events
    said = dict(event.attributes or {})
    assert ("exception", "no tea") == (event.name, said["exception.message"])
    assert "LookupError" == said["exception.type"]
    assert trace.StatusCode.ERROR == span.status.status_code


async def test_it_is_one_where_the_answer_had_begun(kept: Kept):
    with pytest.raises(httpx.RemoteProtocolError):
        await answer_of(breaking_off)
    await eventually(kept.names)
    (event,) = kept.one("GET /").events
    assert "no tea" == dict(event.attributes or {})["exception.message"]


async def test_an_answer_that_tells_a_client_what_is_wrong_has_none(kept: Kept):
    assert 404 == await answer_of(framework, "/refuse")
    await eventually(kept.names)
    assert () == kept.one("GET /").events
