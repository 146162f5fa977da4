"""A small inference engine with continuous batching of its own.

Like engines for language models, it runs all requests on a thread, and adds and removes requests
between two forward passes. It has no limits, priorities or deadlines; pyserve adds them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from services.letters.model import Cache, Floats, sample


class Model(Protocol):
    """The model interface; see ``services.letters.model.Transformer``."""

    def new_cache(self) -> Cache:
        """Return the cache of an empty sequence."""

    def extend(self, parts: Sequence[tuple[Cache, Sequence[int]]]) -> Floats:
        """Append tokens to sequences, and return log probabilities of what comes next."""


@dataclass(frozen=True, slots=True)
class Token:
    """A generated token.

    Attributes:
        number: Index in the alphabet.
        shared_by: Number of requests in the forward pass.
    """

    number: int
    shared_by: int


@dataclass(eq=False, slots=True)
class _Request:
    pending: Sequence[int]
    left: int
    temperature: float
    rng: np.random.Generator
    cache: Cache
    loop: asyncio.AbstractEventLoop
    # Bounded by `max_tokens`.
    tokens: asyncio.Queue[Token | Exception] = field(default_factory=asyncio.Queue)


class Engine:
    """Runs a model for many requests at once.

    Args:
        model: Used by the engine's thread only, except for ``new_cache``.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._changed = threading.Condition()
        self._requests: dict[_Request, None] = {}  # In order of arrival.
        self._failure: Exception | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def generate(
        self, prompt: Sequence[int], *, max_tokens: int, temperature: float, seed: int
    ) -> AsyncGenerator[Token, None]:
        """Yield the tokens after a prompt; closing the generator aborts the request.

        Raises:
            RuntimeError: The model has failed, and the engine with it, or it was closed.
        """
        request = _Request(
            prompt,
            max_tokens,
            temperature,
            np.random.default_rng(seed),
            self._model.new_cache(),
            asyncio.get_running_loop(),
        )
        with self._changed:
            if self._failure is not None or self._is_closed:
                raise RuntimeError("the engine has ended") from self._failure
            self._requests[request] = None
            self._changed.notify()
        try:
            for _ in range(max_tokens):
                token = await request.tokens.get()
                if isinstance(token, Exception):
                    raise RuntimeError("the engine has ended") from token
                yield token
        finally:
            with self._changed:
                self._requests.pop(request, None)

    def close(self) -> None:
        """Fail the requests that there are, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def running(self) -> int:
        """Number of unfinished requests."""
        return len(self._requests)

    def _run(self) -> None:
        failure = RuntimeError("it was closed")
        try:
            while batch := self._next_batch():
                self._pass(batch)
        except Exception as error:
            failure = RuntimeError(f"the model raised {error!r}")
            failure.__cause__ = error
        with self._changed:
            self._failure = failure
            left = list(self._requests)
        self._hand_out([(request, failure) for request in left])

    def _next_batch(self) -> list[_Request]:
        with self._changed:
            self._changed.wait_for(lambda: self._requests or self._is_closed)
            return [] if self._is_closed else list(self._requests)

    def _pass(self, batch: list[_Request]) -> None:
        logs = self._model.extend([(request.cache, request.pending) for request in batch])
        made: list[tuple[_Request, Token | Exception]] = []
        ended = []
        for request, row in zip(batch, logs, strict=True):
            token = sample(row, request.temperature, request.rng)
            request.pending = (token,)
            request.left -= 1
            made.append((request, Token(token, len(batch))))
            if not request.left:
                ended.append(request)
        with self._changed:
            for request in ended:
                self._requests.pop(request, None)
        self._hand_out(made)

    @staticmethod
    def _hand_out(made: list[tuple[_Request, Token | Exception]]) -> None:
        """Pass the results of a forward pass to the event loops, with one call for each loop."""
        loops = {request.loop for request, _ in made}
        for loop in loops:
            own = [each for each in made if each[0].loop is loop]
            try:
                loop.call_soon_threadsafe(_put, own)
            except RuntimeError:  # The loop has ended, and its callers with it.
                continue


def _put(made: list[tuple[_Request, Token | Exception]]) -> None:
    for request, token in made:
        request.tokens.put_nowait(token)
