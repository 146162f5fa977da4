"""Engines for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pyserve
from pyserve.llm import Delta, Engine, EngineOverloaded, GenerateRequest, Load, SimulatedEngine
from pyserve.llm.simulated.scheduler import Rates


@pyserve.deployment(max_ongoing_requests=64)
class Parrot(Engine):
    """Says again what it is told; some words have an effect."""

    def __init__(self) -> None:
        self._open = self._stopped = 0
        self._is_started = False

    async def start(self) -> None:
        await asyncio.sleep(0)
        self._is_started = True

    async def generate(self, request: GenerateRequest) -> AsyncIterator[str | Delta]:
        assert self._is_started
        self._open += 1
        try:
            for word in request.messages[-1]["content"].split():
                match word:
                    case "fail":
                        raise ValueError("the parrot has failed")
                    case "full":
                        raise EngineOverloaded("the parrot is busy", retry_after_s=3)
                    case "mistake":
                        yield 3  # type: ignore[misc]
                    case "wait":
                        await asyncio.Event().wait()
                    case "babble":
                        while True:
                            await asyncio.sleep(0.001)
                            yield "x"
                    case "model":
                        yield f"{request.model} {request.adapter} "
                        yield pyserve.get_multiplexed_model_id()
                    case _:
                        yield word + " "
        finally:
            self._open -= 1
            self._stopped += 1

    async def load(self) -> Load:
        return Load(running_requests=self._open, waiting_requests=self._stopped)


parrot = Parrot.bind()  # type: ignore[attr-defined]

simulated = (
    pyserve.deployment(SimulatedEngine)
    .options(name="simulated", max_ongoing_requests=3000)
    .bind(rates=Rates(step_s=0.002, step_s_per_request=0.0, prefill_tokens_per_s=1e6))
)


@pyserve.deployment
class NeverStarts(Engine):
    """Has no model file."""

    async def start(self) -> None:
        raise FileNotFoundError("there is no model.gguf")


broken = NeverStarts.bind()  # type: ignore[attr-defined]
