"""Beam search with continuous batching: the beams of all requests share one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyserve
from pyserve import Done
from services.beams import beams_pb2, beams_pb2_grpc, search
from services.letters.model import CONTEXT, MODEL_PATH, Transformer
from services.letters.service import CHUNK, read_prompt, refusal

BEAMS_MAX = 16
# Tokens in all caches: enough for two of the largest searches.
_BUDGET = 2 * BEAMS_MAX * CONTEXT


# The default `reserve="bound"` reserves the largest cost at admission: a preempted search would
# have to start over.
@pyserve.deployment(env_vars={"OPENBLAS_NUM_THREADS": "1"})
@pyserve.continuous(max_running=16, budget=_BUDGET)
class Beams(beams_pb2_grpc.BeamsServicer):
    """Finds the most probable continuation of a prompt."""

    Search = pyserve.steps()

    def __init__(self, model_path: Path = MODEL_PATH) -> None:
        self._model = Transformer.load(model_path)

    def cost(self, what: beams_pb2.SearchRequest | search.Search) -> int:
        return what.cost if isinstance(what, search.Search) else len(what.prompt)

    def bound(self, request: beams_pb2.SearchRequest) -> int:
        return max(0, request.beams) * (len(request.prompt) + max(0, request.max_tokens))

    def admit(self, request: beams_pb2.SearchRequest) -> search.Search:
        prompt = read_prompt(self._model, request.prompt, request.max_tokens)
        if not 1 <= request.beams <= BEAMS_MAX:
            raise refusal(f"beams: expected 1 to {BEAMS_MAX}, got {request.beams}")
        return search.Search(
            prompt,
            self._model.new_cache(),
            width=request.beams,
            max_tokens=request.max_tokens,
            until=self._until(request.until),
        )

    def step(self, states: list[search.Search]) -> list[Any]:
        parts = [(beam.cache, beam.pending(CHUNK)) for state in states for beam in state.beams]
        logs = self._model.extend(parts)
        results = []
        begin = 0
        for state in states:
            end = begin + len(state.beams)
            state.advance(logs[begin:end])
            results.append(Done(self._found(state)) if state.has_ended else None)
            begin = end
        return results

    def _until(self, text: str) -> int | None:
        if len(text) > 1 or text not in self._model.alphabet:
            raise refusal(f"until: expected one character that the model knows, got {text!r}")
        return self._model.alphabet.index(text) if text else None

    def _found(self, ended: search.Search) -> beams_pb2.Found:
        best = ended.best
        assert best is not None, "a search ends with a sequence"
        return beams_pb2.Found(
            text=self._model.decode(best.tokens[ended.prompt_length :]),
            log_probability=best.log_probability,
            compared=ended.compared,
        )


# mypy does not look at what class decorators return.
app = Beams.bind()  # type: ignore[attr-defined]
