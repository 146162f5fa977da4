"""The same endpoint three times: plain Python, FastAPI in the mesh, FastAPI under uvicorn.

Beside them an application of bare ASGI that answers with the body it was sent.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

import pyserve

PATH = "/score"
# About 100 bytes each way, as in the other benchmarks.
REQUEST = (
    '{"name":"measured","values":[1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5],"scale":2.0,"labels":["a","b"]}'
)
ANSWER = '{"name":"measured","scores":[3.0,5.0,7.0,9.0,11.0,13.0,15.0,17.0],"labels":["a","b"]}'


def score(body: dict[str, Any]) -> dict[str, Any]:
    """Scale every value."""
    scores = [value * body["scale"] for value in body["values"]]
    return {"name": body["name"], "scores": scores, "labels": body["labels"]}


def make_fastapi() -> FastAPI:
    """Return the application that uvicorn and the mesh both serve."""
    made = FastAPI()

    @made.post(PATH)
    async def answer(body: dict[str, Any]) -> dict[str, Any]:
        return score(body)

    return made


fastapi_app = make_fastapi()


async def echo_body(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body of the request; bare ASGI."""
    if scope["type"] != "http":
        raise RuntimeError(f"a scope of the type {scope['type']!r}; this application takes HTTP")
    parts, is_whole = [], False
    while not is_whole:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        parts.append(event.get("body", b""))
        is_whole = not event.get("more_body", False)
    body = b"".join(parts)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pyserve.deployment
class Plain:
    """Takes and returns JSON, without a framework."""

    async def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        return score(body)


@pyserve.deployment
@pyserve.ingress(make_fastapi)
class Framed:
    """The FastAPI application in a replica."""


bare_app = pyserve.deployment(pyserve.ingress(echo_body)()).bind()
plain_app = Plain.bind()  # type: ignore[attr-defined]
framed_app = Framed.bind()  # type: ignore[attr-defined]
