"""Streaming through handles: every deployment passes on what comes, piece by piece."""

from collections.abc import AsyncGenerator, Generator

import pyserve as serve
from pyserve.handle import DeploymentHandle, DeploymentResponseGenerator


@serve.deployment
class Streamer:
    def __call__(self, limit: int) -> Generator[int, None, None]:
        yield from range(limit)

    async def letters(self, word: str) -> AsyncGenerator[str, None]:
        for letter in word:
            yield letter


@serve.deployment
class Caller:
    def __init__(self, streamer: DeploymentHandle) -> None:
        self._streamer = streamer.options(stream=True)

    async def __call__(self, limit: int) -> AsyncGenerator[int, None]:
        numbers: DeploymentResponseGenerator = self._streamer.remote(limit)
        async for number in numbers:
            yield number * 10

    async def spell(self, word: str) -> AsyncGenerator[str, None]:
        async for letter in self._streamer.letters.remote(word):
            yield letter.upper()


app = Caller.bind(Streamer.bind())
