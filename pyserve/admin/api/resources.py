"""The resources below ``/api``, for the page, ``pyserve top`` and ``pyserve explain``.

Whoever starts the admin server mounts them, behind its check of the mesh token.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pyserve.admin.api.deployments import deployment_details
from pyserve.admin.api.methods import methods_of
from pyserve.admin.api.models import models
from pyserve.admin.api.overview import Between, overview
from pyserve.admin.api.sampler import Sampler, TooManyViewers
from pyserve.admin.api.trying import (
    REQUEST_BYTES_MAX,
    DoorClosed,
    TooManyTries,
    Tries,
    Try,
)
from pyserve.admin.calls.asking import Calls, not_kept
from pyserve.errors import PyserveError, UsageError

if TYPE_CHECKING:
    from starlette.requests import Request

    from pyserve.admin.desk import Front

PAGE_HEADER = "x-pyserve-page"
"""What a form of another site cannot send: a browser asks first, and is told no."""

_NO_STORE = {"cache-control": "no-store"}


class Api:
    """The resources, over what looks at the mesh.

    Args:
        sampler: Takes looks.
        front: The ingress of this process.
    """

    def __init__(self, sampler: Sampler, front: Front) -> None:
        self._sampler = sampler
        self._front = front
        self._tries = Tries()
        self._calls = Calls(front, sampler.odd)

    def routes(self) -> list[Route]:
        """Return what to mount."""
        deployment = "/api/deployments/{application}/{name}.json"
        return [
            Route("/api/overview.json", _answering(self._overview), methods=["GET"]),
            Route(deployment, _answering(self._deployment), methods=["GET"]),
            Route("/api/models.json", _answering(self._models), methods=["GET"]),
            Route("/api/methods.json", _answering(self._methods), methods=["GET"]),
            Route("/api/viewers.json", self._viewers, methods=["GET"]),
            Route("/api/events", self._events, methods=["GET"]),
            Route("/api/calls.json", _answering(self._list_calls), methods=["GET"]),
            Route("/api/calls/{request_id:path}", _answering(self._explain), methods=["GET"]),
            Route("/api/call", _answering(self._call), methods=["POST"]),
        ]

    async def _overview(self, _request: Request) -> Response:
        return _json(overview(await self._sampler.once()))

    async def _deployment(self, request: Request) -> Response:
        application, name = request.path_params["application"], request.path_params["name"]
        found = deployment_details(await self._sampler.once(), application, name)
        if found is None:
            return _refusal(404, f"the mesh has no deployment {application}/{name}")
        return _json(found)

    async def _models(self, _request: Request) -> Response:
        return _json(models((await self._sampler.once()).now))

    async def _viewers(self, _request: Request) -> Response:
        return _json({"viewers": self._sampler.viewers})

    async def _methods(self, _request: Request) -> Response:
        return _json({"methods": methods_of(self._front.described())})

    async def _list_calls(self, _request: Request) -> Response:
        return _json(self._calls.kept())

    async def _explain(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        found = await self._calls.explain(request_id)
        return _json(found) if found is not None else _refusal(404, not_kept(request_id))

    async def _call(self, request: Request) -> Response:
        if PAGE_HEADER not in request.headers:
            return _unread(403, f"a call needs the header {PAGE_HEADER}: 1")
        door = self._front.door()
        if door is None:
            return _unread(503, "the ingress of this process listens nowhere")
        body = await _body(request)
        if body is None:
            return _unread(413, f"a message has at most {REQUEST_BYTES_MAX} bytes")
        return _json(await self._tries.call(door, Try.of(body)))

    async def _events(self, _request: Request) -> Response:
        viewer = self._sampler.watch()
        try:
            first = await anext(viewer)
        except TooManyViewers as error:
            return _refusal(503, str(error))
        headers = {**_NO_STORE, "x-accel-buffering": "no"}
        return StreamingResponse(
            _told(first, viewer), media_type="text/event-stream", headers=headers
        )


async def _told(
    first: Between | PyserveError, viewer: AsyncIterator[Between | PyserveError]
) -> AsyncIterator[bytes]:
    yield _event(first)
    async for latest in viewer:
        yield _event(latest)


def _event(latest: Between | PyserveError) -> bytes:
    if isinstance(latest, PyserveError):
        return f"event: trouble\ndata: {json.dumps(str(latest))}\n\n".encode()
    return b"event: overview\ndata: " + _encoded(overview(latest)) + b"\n\n"


def _answering(
    resource: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a resource whose errors are answers."""

    async def answered(request: Request) -> Response:
        try:
            return await resource(request)
        except UsageError as error:
            return _refusal(400, str(error))
        except (TooManyTries, TooManyViewers) as error:
            return _refusal(503, str(error))
        except DoorClosed as error:
            return _refusal(502, str(error))
        except PyserveError as error:
            return _refusal(503, str(error))

    return answered


async def _body(request: Request) -> bytes | None:
    """Return the body of a request; ``None``: it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_BYTES_MAX:
            return None
    return bytes(body)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _json(value: Any) -> Response:
    return Response(_encoded(value), media_type="application/json", headers=_NO_STORE)


def _refusal(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status, headers=_NO_STORE)


def _unread(status: int, text: str) -> Response:
    """Refuse a request whose body is left; clients learn that the server closes its connection."""
    answer = _refusal(status, text)
    answer.headers["connection"] = "close"
    return answer
