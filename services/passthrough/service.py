"""Admission for an engine that batches by itself: ``admit`` is a generator, there is no ``step``.

It implements the same service as ``services.letters``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pyserve
from services.letters import letters_pb2, letters_pb2_grpc
from services.letters.model import CONTEXT, MODEL_PATH, Transformer
from services.letters.service import read_request
from services.passthrough.engine import Engine

_RUNNING = 32


# The unit of cost is a token in the engine's caches, at the full length of a request.
@pyserve.deployment(env_vars={"OPENBLAS_NUM_THREADS": "1"})
@pyserve.continuous(max_running=_RUNNING, budget=_RUNNING * CONTEXT // 2)
class Passthrough(letters_pb2_grpc.LettersServicer):
    """Continues prompts by an engine; requests beyond its limits wait here."""

    Generate = pyserve.steps()

    def __init__(self, model_path: Path = MODEL_PATH) -> None:
        self._model = Transformer.load(model_path)
        self._engine = Engine(self._model)

    def cost(self, request: letters_pb2.GenerateRequest) -> int:
        return len(request.prompt) + max(0, request.max_tokens)

    async def admit(self, request: letters_pb2.GenerateRequest) -> AsyncIterator[letters_pb2.Piece]:
        prompt = read_request(self._model, request)
        tokens = self._engine.generate(
            prompt,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
        )
        # Closing this generator aborts the request in the engine.
        async with aclosing(tokens):
            async for token in tokens:
                text = self._model.decode([token.number])
                yield letters_pb2.Piece(text=text, shared_by=token.shared_by)

    async def aclose(self) -> None:
        """End the engine's thread after its current forward pass."""
        await asyncio.to_thread(self._engine.close)


# mypy does not look at what class decorators return.
app = Passthrough.bind()  # type: ignore[attr-defined]
