"""The film pipeline behind a door for HTTP, beside a model that batches and is loaded on demand."""

from __future__ import annotations

import asyncio
from typing import Any

from opentelemetry import baggage, trace

import pyserve
from pyserve import Done, Emit
from pyserve.observe.delays import asks
from pyserve.request import CURRENT
from services.pipeline.service import Pace, build

FRAMES = 4


@pyserve.deployment
class Scores:
    """Scores in batches of two, with a model that is loaded for the first."""

    @pyserve.multiplexed
    async def get_model(self, model_id: str) -> int:
        await asyncio.sleep(0.01)  # A load of no time could not be told from none.
        return len(model_id)

    async def is_asked(self) -> bool:
        return asks(CURRENT.get())

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
    async def score(self, items: list[int]) -> list[int]:
        factor = await self.get_model()
        return [item * factor for item in items]


@pyserve.deployment(max_ongoing_requests=1)
class Narrow:
    """Takes one call at a time, and its time for it."""

    async def __call__(self) -> None:
        await asyncio.sleep(0.05)


@pyserve.deployment
@pyserve.continuous
class Countdown:
    """Answers in so many steps."""

    def admit(self, steps: int) -> list[int]:
        return [steps]

    def step(self, states: list[list[int]]) -> list[Any]:
        for state in states:
            state[0] -= 1
        return [Emit(state[0]) if state[0] else Done("liftoff") for state in states]


@pyserve.deployment
class Door:
    """Answers a request with what both say, and with what it sees of the trace."""

    def __init__(
        self,
        pipeline: pyserve.DeploymentHandle,
        scores: pyserve.DeploymentHandle,
        narrow: pyserve.DeploymentHandle,
        countdown: pyserve.DeploymentHandle,
    ) -> None:
        self._narrow = narrow
        self._countdown = countdown
        self._pipeline = pipeline
        self._scores = scores.options(method_name="score")
        self._tracer = trace.get_tracer("door")

    async def plain(self, number: int) -> int:
        return number

    async def __call__(self, request: Any) -> dict[str, Any]:
        if "x-fail" in request.headers:
            raise LookupError("no such tea")
        if "x-steps" in request.headers:
            await asyncio.gather(self._countdown.remote(3), self._countdown.remote(2))
            return {}
        if "x-crowd" in request.headers:
            await asyncio.gather(self._narrow.remote(), self._narrow.remote())
            return {}
        with self._tracer.start_as_current_span("own work") as span:
            span.set_attribute("tenant", str(baggage.get_baggage("tenant")))
            film = await self._pipeline.naive.remote(FRAMES)
        model_id = request.headers.get("x-model", "big")
        scores = self._scores.options(multiplexed_model_id=model_id)
        scored = await asyncio.gather(scores.remote(1), scores.remote(2))
        context = trace.get_current_span().get_span_context()
        asked = await self._scores.options(method_name="is_asked").remote()
        return {
            "asked": asked,
            "frames": film.frames,
            "scores": scored,
            "span_id": f"{context.span_id:016x}",
        }


# mypy does not look at what class decorators return, so it sees classes here.
def _bound(deployment: Any, *arguments: object) -> pyserve.Application:
    application: pyserve.Application = deployment.bind(*arguments)
    return application


pipeline = build(Pace(decode_ms=0, predict_ms=0, encode_ms=0))
app = _bound(Door, pipeline, _bound(Scores), _bound(Narrow), _bound(Countdown))
