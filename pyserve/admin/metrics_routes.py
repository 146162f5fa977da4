"""``/metrics``, the numbers of this node, and ``/-/targets``, where those of all nodes are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pyserve.admin.exposition import write
from pyserve.admin.targets import targets_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from pyserve.admin.desk import Desk


def routes(desk: Desk) -> list[Route]:
    """Return the routes; without a mesh to ask there are no targets."""
    found = [Route("/metrics", _Metrics(desk).get, methods=["GET"])]
    if desk.status is not None:
        found.append(Route("/-/targets", _Targets(desk).get, methods=["GET"]))
    return found


class _Metrics:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # One scrape at a time: two Prometheus servers ask for the same numbers.
        self._turn = asyncio.Lock()

    async def get(self, request: Request) -> Response:
        async with self._turn:
            families = await self._desk.gathering.gather()
            accept = request.headers.get("accept", "")
            # Of a large node it is megabytes of text, which must not hold up the loop.
            text, content_type = await asyncio.to_thread(write, families, accept)
        return Response(text, headers={"content-type": content_type})


class _Targets:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def get(self, _request: Request) -> Response:
        assert self._desk.status is not None, "the route is there"
        try:
            reply = await self._desk.status()
        except ConnectionError as error:
            # Prometheus keeps the targets that it has.
            return JSONResponse({"error": str(error)}, status_code=503)
        found: list[dict[str, Any]] = targets_of(reply, speaks_tls=self._desk.speaks_tls)
        return JSONResponse(found)
