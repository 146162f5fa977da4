"""Applications of the tests of plain HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

import pyserve
from pyserve.api.handles.handle import DeploymentHandle


@pyserve.deployment
class Ledger:
    """Writes down what happened; other deployments call it."""

    def __init__(self) -> None:
        self._happened: dict[str, list[str]] = {}
        self._changed = asyncio.Condition()

    async def note(self, key: str, what: str) -> None:
        async with self._changed:
            self._happened.setdefault(key, []).append(what)
            self._changed.notify_all()

    async def until(self, key: str, what: str) -> list[str]:
        """Return what happened as soon as ``what`` has."""
        async with self._changed:
            await self._changed.wait_for(lambda: what in self._happened.get(key, ()))
            return self._happened[key]

    async def hold(self, key: str) -> None:
        """Wait for a cancellation, and write it down."""
        await self.note(key, "child began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.note(key, "child cancelled")
            raise


PLACES = 8


@pyserve.deployment(request_timeout_s=30, max_ongoing_requests=PLACES)
class Web:
    """Does what the path below the route prefix says."""

    def __init__(self, ledger: DeploymentHandle) -> None:
        self._ledger = ledger

    async def __call__(self, request: Request) -> Any:
        name = request.url.path.removeprefix(request.scope["root_path"]).strip("/")
        return await getattr(self, f"_{name.replace('-', '_')}", self._about)(request)

    async def _about(self, request: Request) -> Any:
        context = pyserve.get_request_context()
        body = await request.body()
        return {
            "method": request.method,
            "path": request.url.path,
            "query": dict(request.query_params),
            "root_path": request.scope["root_path"],
            "host": request.headers.get("host"),
            "headers": sorted(request.headers.keys()),
            "body_bytes": len(body),
            "request_id": context.request_id,
            "time_remaining_s": context.time_remaining(),
            "model": pyserve.get_multiplexed_model_id(),
            "deployment": context.deployment,
        }

    async def _echo(self, request: Request) -> bytes:
        return await request.body()

    async def _response(self, _request: Request) -> Any:
        response = PlainTextResponse("teapot", status_code=418, headers={"x-own": "1"})
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    async def _arrays(self, _request: Request) -> Any:
        return {"array": np.arange(3), "number": np.float32(0.5)}

    async def _nothing(self, _request: Request) -> None:
        return None

    async def _fail(self, _request: Request) -> None:
        raise ValueError("what went wrong")

    async def _abort(self, request: Request) -> None:
        code = grpc.StatusCode[request.query_params["code"]]
        raise pyserve.Abort(code, "the details")

    async def _refuse(self, _request: Request) -> None:
        raise HTTPException(410, "it is gone")

    async def _stream(self, request: Request) -> Any:
        key = request.query_params["key"]

        async def pieces() -> AsyncIterator[str]:
            try:
                yield "first "
                await self._ledger.until.remote(key, "go on")
                yield "last"
            finally:
                await self._ledger.note.options(detached=True).remote(key, "closed")

        made = pieces()
        return StreamingResponse(made) if "response" in request.query_params else made

    async def _break_off(self, request: Request) -> Any:
        async def pieces() -> AsyncIterator[str]:
            yield "a"
            await self._ledger.until.remote(request.query_params["key"], "go on")
            raise ValueError("in the middle")

        return pieces()

    async def _hold(self, request: Request) -> None:
        key = request.query_params["key"]
        try:
            await self._ledger.hold.remote(key)
        except asyncio.CancelledError:
            await self._ledger.note.options(detached=True).remote(key, "handler cancelled")
            raise

    async def _scatter(self, request: Request) -> None:
        # Not awaited, so that the end of this task alone would not end it.
        child = self._ledger.hold.remote(request.query_params["key"])
        await asyncio.Event().wait()
        await child

    async def _idle(self, request: Request) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            key = request.query_params["key"]
            await self._ledger.note.options(detached=True).remote(key, "handler cancelled")
            raise

    async def _outlive(self, request: Request) -> None:
        key = request.query_params["key"]
        await self._ledger.note.remote(key, "began")
        await self._ledger.until.remote(key, "go on")
        await self._ledger.note.remote(key, "finished")

    async def _exit(self, _request: Request) -> None:
        raise SystemExit(3)

    async def _child(self, request: Request) -> Any:
        # Neither awaited, nor marked as a stream.
        return self._ledger.until.remote(request.query_params["key"], "x")


@dataclass
class Pair:
    left: float
    right: float = 1.0


@pyserve.deployment
def multiply(pair: Pair) -> dict[str, Any]:
    return {
        "product": pair.left * pair.right,
        "is_main_thread": threading.current_thread() is threading.main_thread(),
    }


@pyserve.deployment
class Count:
    """A plain generator of a data type."""

    def __call__(self, up_to: int) -> Iterator[dict[str, int]]:
        for number in range(up_to):
            yield {"number": number}


@pyserve.deployment(max_ongoing_requests=64)
class Batches:
    def __init__(self) -> None:
        self._sizes: list[int] = []

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.5)
    async def __call__(self, requests: list[Request]) -> list[Any]:
        self._sizes.append(len(requests))
        return [{"n": (await each.json())["n"], "of": len(requests)} for each in requests]


@pyserve.deployment
class Models:
    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def load(self, model_id: str) -> str:
        return model_id.upper()

    async def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"model": await self.load(pyserve.get_multiplexed_model_id()), "keys": sorted(data)}
