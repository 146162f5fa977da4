"""Requests beyond what replicas and queues hold are turned away at once."""

import asyncio

from starlette.requests import Request

import pyserve as serve
from pyserve.config import BackpressureConfig


@serve.deployment(max_ongoing_requests=2, max_queued_requests=2)
class SlowDeployment:
    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, request: Request) -> str:
        await self.gate.wait()
        return "Hello!"

    async def open(self) -> None:
        self.gate.set()


app = SlowDeployment.bind()
polite = SlowDeployment.options(
    name="Polite", backpressure_config=BackpressureConfig(status_code=429, retry_after_s=5)
).bind()
