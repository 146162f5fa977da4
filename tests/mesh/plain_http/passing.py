"""Deployments that pass the requests of plain HTTP on."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

import pyserve


@pyserve.deployment
class Reader:
    async def __call__(self, request: Request) -> dict[str, Any]:
        return {
            "method": request.method,
            "path": request.url.path,
            "query": dict(request.query_params),
            "own": request.headers["x-own"],
            "client": request.client is not None and request.client.host,
            "bytes": len(await request.body()),
            "has_left": await request.is_disconnected(),
        }

    async def sum(self, request: Request) -> int:
        return sum(await request.json())

    async def form(self, request: Request) -> dict[str, str]:
        return {name: str(value) for name, value in (await request.form()).items()}


@pyserve.deployment
class Between:
    """Passes on what was passed on to it."""

    def __init__(self, reader: pyserve.DeploymentHandle) -> None:
        self._reader = reader

    async def __call__(self, request: Request) -> Any:
        return await self._reader.remote(request)


@pyserve.deployment
class Passing:
    def __init__(self, reader: pyserve.DeploymentHandle, between: pyserve.DeploymentHandle) -> None:
        self._reader = reader
        self._between = between

    async def __call__(self, request: Request) -> Any:
        match request.query_params["to"]:
            case "reader":
                return await self._reader.remote(request=request)
            case "between":
                return await self._between.remote(request)
            case method:
                return await self._reader.options(method_name=method).remote(request)


@pyserve.deployment
class PassingOnAThread:
    def __init__(self, reader: pyserve.DeploymentHandle) -> None:
        self._reader = reader

    def __call__(self, request: Request) -> Any:
        return self._reader.remote(request).result(timeout_s=30)
