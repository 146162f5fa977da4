"""Dynamic request batching: sizes from the ``user_config``, and sizes that are not counts."""

from typing import Any

import numpy as np

import pyserve as serve


@serve.deployment(user_config={"max_batch_size": 4, "batch_wait_timeout_s": 5.0})
class Squares:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        self.__call__.set_max_batch_size(user_config["max_batch_size"])
        self.__call__.set_batch_wait_timeout_s(user_config["batch_wait_timeout_s"])

    @serve.batch(max_batch_size=100, batch_wait_timeout_s=0.1)
    async def __call__(self, samples: list[int]) -> list[int]:
        self.sizes.append(len(samples))
        return np.array(samples) ** 2  # type: ignore[return-value]  # an array is split as well

    def batch_sizes(self) -> list[int]:
        return self.sizes


@serve.deployment
class TokenBatcher:
    @serve.batch(
        max_batch_size=6,
        batch_wait_timeout_s=1.0,
        batch_size_fn=lambda texts: sum(len(text.split()) for text in texts),
    )
    async def process(self, texts: list[str]) -> list[tuple[int, int]]:
        total = sum(len(text.split()) for text in texts)
        return [(len(text.split()), total) for text in texts]

    async def __call__(self, text: str) -> tuple[int, int]:
        return await self.process(text)


app = Squares.bind()
tokens = TokenBatcher.bind()
