"""Models that declare their tensors, each in a deployment of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np

import pyserve
from pyserve import inference
from pyserve.inference import Tensor


@pyserve.deployment(num_replicas=2)
@inference.model(
    name="adder",
    versions=("1", "2"),
    inputs=[Tensor("a", "FP32", (-1, 4)), Tensor("b", "FP32", (-1, 4))],
    outputs=[Tensor("sum", "FP32", (-1, 4)), Tensor("difference", "FP32", (-1, 4))],
)
class Adder:
    async def infer(self, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
        if np.isinf(a).any():
            raise ValueError("the adder does not count so far")
        if (a < 0).all():
            await asyncio.sleep(60)
        return {"sum": a + b, "difference": a - b}


@pyserve.deployment
@inference.model(
    name="upper",
    inputs=[Tensor("text", "BYTES", (-1,)), Tensor("suffix", "BYTES", (1,), optional=True)],
    outputs=[Tensor("upper", "BYTES", (-1,))],
)
class Upper:
    def infer(self, text: np.ndarray, suffix: np.ndarray | None = None) -> list[bytes]:
        end = b"" if suffix is None else suffix[0]
        return [each.upper() + end for each in text]


@pyserve.deployment
@inference.model(
    name="counter",
    inputs=[Tensor("end", "INT32", (1,))],
    outputs=[Tensor("number", "INT32", (1,))],
)
class Counter:
    async def infer(self, end: np.ndarray) -> AsyncIterator[list[int]]:
        for number in range(int(end[0])):
            yield [number]


@pyserve.deployment
@inference.model(
    name="batched",
    inputs=[Tensor("x", "INT64", (-1,))],
    outputs=[Tensor("size", "INT64", ())],
)
class Batched:
    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=5.0)
    async def infer(self, x: list[np.ndarray]) -> list[int]:
        return [len(x)] * len(x)


@pyserve.deployment
class Root:
    """Holds the others, so that they are one application."""

    def __init__(self, *models: pyserve.DeploymentHandle) -> None:
        self.models = models

    async def __call__(self, body: dict[str, int]) -> dict[str, int]:
        return {"models": len(self.models), **body}


app = Root.bind(Adder.bind(), Upper.bind(), Counter.bind(), Batched.bind())
only = Adder.bind()
