"""Text generation with continuous batching: chunked prefill, and a budget for the caches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

import pyserve
from pyserve import Done, Emit
from services.letters import letters_pb2, letters_pb2_grpc
from services.letters.model import CONTEXT, MODEL_PATH, Cache, Floats, Transformer, sample

# Most prompt tokens that a sequence reads in one step, so that long prompts delay nobody.
CHUNK = 32
# Tokens of all caches together: half of what all places need at full length. Most sequences are
# shorter; when they outgrow it, one is preempted.
_RUNNING = 32
_BUDGET = _RUNNING * CONTEXT // 2


@dataclass(frozen=True)
class Snapshot:
    """A preempted generation without its cache, which is recomputed on resume."""

    request: letters_pb2.GenerateRequest
    tokens: list[int]
    rng: np.random.Generator


@dataclass(eq=False)
class Generation:
    """The state of one request.

    Attributes:
        request: It.
        tokens: The prompt and the tokens generated so far.
        rng: For sampling.
        cache: Holds a prefix of the tokens.
        left: Tokens still to generate.
    """

    request: letters_pb2.GenerateRequest
    tokens: list[int]
    rng: np.random.Generator
    cache: Cache
    left: int

    def pending(self) -> list[int]:
        """Return the tokens that the next step appends to the cache."""
        return self.tokens[self.cache.length : self.cache.length + CHUNK]

    def draw(self, logs: Floats) -> int:
        """Sample the next token and append it."""
        token = sample(logs, self.request.temperature, self.rng)
        self.tokens.append(token)
        self.left -= 1
        return token


# The unit of cost is a token in a cache, including those about to be appended. The matrices are
# too small to be worth several BLAS threads.
@pyserve.deployment(env_vars={"OPENBLAS_NUM_THREADS": "1"})
@pyserve.continuous(max_running=_RUNNING, budget=_BUDGET, reserve="now")
class Letters(letters_pb2_grpc.LettersServicer):
    """Continues prompts; all running requests share one forward pass per token."""

    Generate = pyserve.steps()

    def __init__(self, model_path: Path = MODEL_PATH) -> None:
        self._model = Transformer.load(model_path)

    def cost(self, what: letters_pb2.GenerateRequest | Generation | Snapshot) -> int:
        return len(what.prompt if isinstance(what, letters_pb2.GenerateRequest) else what.tokens)

    def bound(self, request: letters_pb2.GenerateRequest) -> int:
        return len(request.prompt) + max(0, request.max_tokens)

    def admit(self, request: letters_pb2.GenerateRequest) -> Generation:
        tokens = read_request(self._model, request)
        rng = np.random.default_rng(request.seed)
        return Generation(request, tokens, rng, self._model.new_cache(), request.max_tokens)

    def step(self, states: list[Generation]) -> list[Any]:
        logs = self._model.extend([(state.cache, state.pending()) for state in states])
        return [
            self._result(state, row, shared_by=len(states))
            for state, row in zip(states, logs, strict=True)
        ]

    def preempt(self, state: Generation) -> Snapshot:
        return Snapshot(state.request, state.tokens, state.rng)

    def resume(self, snapshot: Snapshot) -> Generation:
        request, prompt_length = snapshot.request, len(snapshot.request.prompt)
        left = request.max_tokens - (len(snapshot.tokens) - prompt_length)
        cache = self._model.new_cache()
        return Generation(request, snapshot.tokens, snapshot.rng, cache, left)

    def _result(self, state: Generation, logs: Floats, shared_by: int) -> Any:
        if state.cache.length < len(state.tokens):
            return None  # Still reading the prompt.
        text = self._model.decode([state.draw(logs)])
        piece = letters_pb2.Piece(text=text, shared_by=shared_by)
        return Emit(piece) if state.left else Done(piece)


def read_request(model: Transformer, request: letters_pb2.GenerateRequest) -> list[int]:
    """Return the tokens of a request's prompt.

    Raises:
        pyserve.Abort: The request is invalid.
    """
    tokens = read_prompt(model, request.prompt, request.max_tokens)
    if not request.temperature >= 0.0:
        raise refusal(f"temperature: expected at least 0, got {request.temperature}")
    return tokens


def read_prompt(model: Transformer, prompt: str, max_tokens: int) -> list[int]:
    """Return the tokens of a prompt.

    Raises:
        pyserve.Abort: It is empty, has characters that are not in the alphabet, or is too long for
            ``max_tokens`` after it.
    """
    if not prompt:
        raise refusal("prompt: expected at least one character")
    if max_tokens < 1 or len(prompt) + max_tokens > CONTEXT:
        most = CONTEXT - len(prompt)
        raise refusal(f"max_tokens: expected 1 to {most} after this prompt, got {max_tokens}")
    try:
        return model.encode(prompt.lower())
    except ValueError as error:
        raise refusal(f"prompt: {error}") from None


def refusal(text: str) -> pyserve.Abort:
    """Return the error of an invalid request."""
    return pyserve.Abort(grpc.StatusCode.INVALID_ARGUMENT, text)


# mypy does not look at what class decorators return.
app = Letters.bind()  # type: ignore[attr-defined]
