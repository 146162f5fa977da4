"""Exceptions after the first server-sent event are events of the request's span."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from pyserve.aio import HttpCall, ServerSettings
from pyserve.aio._server import Server
from pyserve.errors import DeploymentUnavailable
from pyserve.replica.http.plans import send_events
from tests.support.waiting import eventually
from tests.unit.observe.traces.conftest import Kept

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def _sent(kept: Kept, fail: Callable[[], object], **headers: str) -> tuple[str, ReadableSpan]:
    """Return what a client is told after the first event, and the span of its request."""

    async def values() -> AsyncIterator[Any]:
        yield 1
        fail()

    async def handle(http: HttpCall) -> None:
        await send_events(http, values())

    server = Server(settings=ServerSettings(http=handle), options=(("pyserve.doors", 1),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
            given = {"traceparent": TRACEPARENT, **headers}
            found = await client.get(f"http://127.0.0.1:{port}/", headers=given)
    finally:
        await server.stop(0)
    assert 200 == found.status_code
    first, second, rest = found.text.split("\n\n")
    assert ("data: 1", "") == (first, rest)
    name, data = second.split("\n")
    assert "event: error" == name
    await eventually(kept.names)
    text: str = json.loads(data.removeprefix("data: "))["error"]
    return text, kept.one("GET /")


def _raise(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


async def test_it_is_noted_and_logged(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    text, span = await _sent(kept, _raise(LookupError("no tea")))

    assert "The deployment raised an exception; its log has the traceback." == text
    (event,) = span.events
    said = dict(event.attributes or {})
    assert ("exception", "no tea") == (event.name, said["exception.message"])
    assert "LookupError" == said["exception.type"]
    assert trace.StatusCode.ERROR == span.status.status_code
    assert "LookupError" == dict(span.attributes or {})["error.type"]
    assert "unexpected LookupError in GET /" in caplog.text


async def test_what_callers_are_told_by_pyserve_is_no_failure(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    text, span = await _sent(kept, _raise(DeploymentUnavailable("shop", "the replica ends")))

    assert "the replica ends" in text
    assert () == span.events
    assert trace.StatusCode.UNSET == span.status.status_code
    assert "unexpected" not in caplog.text
