"""The performance guide's example of batching, with the import changed.

The windows are longer than its 0.1 s: on a busy machine the calls that fill a batch may come that
far apart.
"""

from typing import Any

import numpy as np

import pyserve as serve


@serve.deployment
class Doubler:
    def __call__(self, sample: int) -> int:
        return sample * 2


@serve.deployment
class BatchedDoubler:
    def __init__(self) -> None:
        self._sizes: list[int] = []

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=10.0)
    async def __call__(self, samples: list[int]) -> Any:
        self._sizes.append(len(samples))
        return np.array(samples) * 2

    def sizes(self) -> list[int]:
        return self._sizes


@serve.deployment
class Adder:
    @serve.batch(max_batch_size=4, batch_wait_timeout_s=10.0)
    async def add(self, left: list[int], right: list[str], scale: list[int]) -> list[int]:
        return [
            (first + int(second)) * factor
            for first, second, factor in zip(left, right, scale, strict=True)
        ]
