"""What curl calls: a plain-Python deployment for HTTP, and services.echo beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

import pyserve
from services.echo.service import Echo


@pyserve.deployment
class Plain:
    """Does what the last part of the path says."""

    def __init__(self, echo: object) -> None:
        self._echo = echo
        self._released = asyncio.Event()
        self._cancelled = 0

    async def __call__(self, request: Request) -> Any:
        match request.url.path:
            case "/add":
                return {"sum": sum(await request.json())}
            case "/facts":
                return await self._facts(request)
            case "/wait":
                return await self._wait()
            case "/cancelled":
                return {"cancelled": self._cancelled}
            case "/gated":
                return StreamingResponse(self._gated(), media_type="text/plain")
            case "/release":
                self._released.set()
                return None
            case other:
                return Response(f"nothing at {other}", status_code=404)

    async def _facts(self, request: Request) -> JSONResponse:
        body = await request.body()
        facts = {
            "method": request.method,
            "version": request.scope["http_version"],
            "query": dict(request.query_params),
            "headers": dict(request.headers),
            "body_bytes": len(body),
            "body_sum": sum(body),
        }
        return JSONResponse(facts, headers={"x-facts": "yes"})

    async def _wait(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._cancelled += 1
            raise

    async def _gated(self) -> AsyncIterator[str]:
        yield "one\n"
        await self._released.wait()
        self._released.clear()
        yield "two\n"


app = Plain.bind(Echo.bind())
