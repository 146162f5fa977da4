"""Applications of the tests of files."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

import pyserve


async def _respond(request: Request) -> FileResponse:
    return FileResponse(request.query_params["path"])


@pyserve.deployment
@pyserve.ingress(Starlette(routes=[Route("/file", _respond, methods=["GET", "HEAD"])]))
class Web:
    """Answers with files as Starlette does."""


@pyserve.deployment
class Plain:
    """Answers with files as plain handlers do."""

    def __call__(self, request: Request) -> pyserve.File:
        return pyserve.File(request.query_params["path"])


web = Web.bind()
