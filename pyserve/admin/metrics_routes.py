"""``/metrics``, the numbers of this node, and ``/-/targets``, where those of all nodes are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pyserve.admin.buckets import coarser
from pyserve.admin.exposition import content_type_of, write
from pyserve.admin.rate_limits import RateLimited
from pyserve.admin.targets import targets_of
from pyserve.observe.metrics import MODELS

if TYPE_CHECKING:
    from starlette.requests import Request

    from pyserve.admin.context import AdminContext
    from pyserve.observe.metrics import Family

# Texts of one scrape. More are asked for by nobody but to have them written; Prometheus's own
# format will do for those.
_FORMATS_MAX = 4


def routes(admin_context: AdminContext) -> list[Route]:
    """Return the routes; the one for targets only if the mesh's status is available."""
    found = [Route("/metrics", _Metrics(admin_context).get, methods=["GET"])]
    if admin_context.status is not None:
        found.append(Route("/-/targets", _Targets(admin_context).get, methods=["GET"]))
    return found


class _Metrics:
    def __init__(self, admin_context: AdminContext) -> None:
        # Two Prometheus servers ask for the same numbers.
        self._pages = RateLimited(lambda: _page(admin_context))

    async def get(self, request: Request) -> Response:
        page = await self._pages.get()
        text, content_type = await page.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})


async def _page(admin_context: AdminContext) -> _Page:
    families = [each for each in await admin_context.gathering.gather() if each.name != MODELS]
    return _Page(coarser(families, admin_context.bounds))


class _Page:
    """The numbers of one scrape, written once for each format."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families
        self._turn = asyncio.Lock()
        self._texts: dict[str, bytes] = {}

    async def text(self, accept: str) -> tuple[bytes, str]:
        content_type = content_type_of(accept)
        async with self._turn:
            if content_type not in self._texts and len(self._texts) >= _FORMATS_MAX:
                accept, content_type = "", content_type_of("")
            if content_type not in self._texts:
                # Of a large node it is megabytes of text, which must not hold up the loop.
                text, _ = await asyncio.to_thread(write, self._families, accept)
                self._texts[content_type] = text
            return self._texts[content_type], content_type


class _Targets:
    def __init__(self, admin_context: AdminContext) -> None:
        assert admin_context.status is not None, "the route is there"
        self._admin_context = admin_context
        self._replies = RateLimited(admin_context.status)

    async def get(self, _request: Request) -> Response:
        try:
            reply = await self._replies.get()
        except ConnectionError as error:
            # Prometheus keeps the targets that it has.
            return JSONResponse({"error": str(error)}, status_code=503)
        found: list[dict[str, Any]] = targets_of(reply, speaks_tls=self._admin_context.speaks_tls)
        return JSONResponse(found)
