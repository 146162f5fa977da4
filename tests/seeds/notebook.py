"""What the notebook shows: batches, models, and both in one.

The windows of batches are longer than its 0.1 s: on a busy machine the calls that fill a batch may
come that far apart.
"""

import asyncio
from typing import Any

import pyserve as serve


@serve.deployment
class SimpleModel:
    def run(self, sample: int) -> int:
        return sample * 2


@serve.deployment
class SimpleBatchedModel:
    def __init__(self) -> None:
        self._batches: list[list[int]] = []

    @serve.batch(batch_wait_timeout_s=10.0, max_batch_size=4)
    async def run(self, samples: list[int]) -> list[int]:
        self._batches.append(samples)
        return [sample * 2 for sample in samples]

    def batches(self) -> list[list[int]]:
        return self._batches


@serve.deployment
class ModelServer:
    def __init__(self) -> None:
        self._loads: list[str] = []

    @serve.multiplexed(max_num_models_per_replica=2)
    async def load_model(self, model_id: str) -> str:
        self._loads.append(model_id)
        await asyncio.sleep(0.1)  # a download
        return model_id

    async def __call__(self, request: dict[str, object]) -> str:
        model = await self.load_model(serve.get_multiplexed_model_id())
        return await self.predict(model, request)

    # The notebook has a plain `def` here, which cannot await.
    async def predict(self, model: str, request: dict[str, object]) -> str:
        await asyncio.sleep(0.05)  # an inference
        return f"{model} saw {sorted(request)}"

    def loads(self) -> list[str]:
        return self._loads


@serve.deployment
class PrintedModelServer:
    """The notebook's server, whose handler says nothing about its request."""

    def __init__(self) -> None:
        self._loads: list[str] = []

    @serve.multiplexed(max_num_models_per_replica=2)
    async def load_model(self, model_id: str) -> str:
        return await self.load_model_from_storage(model_id)

    async def __call__(self, request: Any) -> str:
        model_id = serve.get_multiplexed_model_id()
        model = await self.load_model(model_id)
        return await self.predict(model, request)

    async def load_model_from_storage(self, model_id: str) -> str:
        self._loads.append(model_id)
        await asyncio.sleep(0.1)  # a download
        return model_id

    async def predict(self, model: str, request: Any) -> str:
        await asyncio.sleep(0.05)  # an inference
        return f"prediction from {model}"

    def loads(self) -> list[str]:
        return self._loads


class Weights:
    def __init__(self, model_id: str) -> None:
        self.model_id = model_id

    def predict_batch(self, requests: list[object]) -> list[tuple[str, object, int]]:
        return [(self.model_id, request, len(requests)) for request in requests]


@serve.deployment
class OptimizedPipeline:
    @serve.multiplexed(max_num_models_per_replica=5)
    async def load_model(self, model_id: str) -> Weights:
        return Weights(model_id)

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=10.0)
    async def __call__(self, requests: list[object]) -> list[tuple[str, object, int]]:
        model = await self.load_model(serve.get_multiplexed_model_id())
        return model.predict_batch(requests)
