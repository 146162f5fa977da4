"""Batched requests whose answers stream: those who are done leave by ``StopIteration``."""

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import StreamingResponse

import pyserve as serve


@serve.deployment
class Batchbot:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=5)
    async def generate(
        self, limits: list[int]
    ) -> AsyncGenerator[list[str | type[StopIteration]], None]:
        self.sizes.append(len(limits))
        for step in range(max(limits)):
            yield [str(step) if step < limit else StopIteration for limit in limits]
            await asyncio.sleep(0)

    async def __call__(self, request: Request) -> StreamingResponse:
        limit = int(request.query_params.get("max", "25"))
        return StreamingResponse(self.generate(limit), status_code=200, media_type="text/plain")

    def batch_sizes(self) -> list[int]:
        return self.sizes


app = Batchbot.bind()
