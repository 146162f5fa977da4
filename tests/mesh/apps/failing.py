"""Applications that fail at every door, with a text that the client chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

import pyserve
from pyserve.handle import DeploymentHandle


@pyserve.deployment
class Child:
    """Raises for handles: ``async def`` and ``def``."""

    async def fail(self, text: str) -> str:
        raise LookupError(f"child {text}")

    def fail_in_thread(self, text: str) -> str:
        raise LookupError(f"thread {text}")


@pyserve.deployment
class Doors:
    """Fails at the door that the query names."""

    def __init__(self, child: DeploymentHandle) -> None:
        self._child = child

    async def __call__(self, request: Request) -> Any:
        door, text = request.query_params["door"], request.query_params["text"]
        match door:
            case "batch":
                return await self.batched(text)
            case "item":
                return await self.answered(text)
            case "model":
                return await self.model(text)
            case "child":
                return await self._child.fail.remote(text)
            case "thread":
                return await self._child.fail_in_thread.remote(text)
            case "stream":
                return StreamingResponse(self.stream(text))
        raise LookupError(f"http {text}")

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def batched(self, texts: list[str]) -> list[str]:
        raise LookupError(f"batch {texts}")

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
    async def answered(self, texts: list[str]) -> list[str | Exception]:
        return [LookupError(f"item {text}") for text in texts]

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def model(self, model_id: str) -> str:
        # Not a LookupError, which would mean that the model does not exist.
        raise RuntimeError(f"model {model_id}")

    async def stream(self, text: str) -> AsyncIterator[bytes]:
        yield b"begun"
        raise LookupError(f"stream {text}")


app = Doors.bind(Child.bind())


async def fail(request: Request) -> None:
    raise LookupError(f"asgi {request.query_params['text']}")


@pyserve.deployment
@pyserve.ingress(Starlette(routes=[Route("/", fail)]))
class Web:
    """An ASGI application."""


web = Web.bind()
