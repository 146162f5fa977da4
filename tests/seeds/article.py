"""The house prices of the article: one handler, without and with ``batching_config``."""

from typing import Any

import numpy as np
from starlette.requests import Request as HttpRequest

import pyserve as serve

# Price per room, per square metre, and for standing there at all.
_WEIGHTS = np.array([10_000.0, 2_000.0, 50_000.0])


class Model:
    """Stands for the network: one pass for any number of rows."""

    def __init__(self) -> None:
        self.passes: list[tuple[int, ...]] = []

    def predict(self, rows: np.ndarray) -> np.ndarray:
        self.passes.append(rows.shape)
        prices: np.ndarray = rows @ _WEIGHTS
        return prices


class Request:
    """The parts of an HTTP request that the handler needs."""

    def __init__(self, **body: object) -> None:
        self._body = body

    async def json(self) -> Any:
        return self._body


class HousePrices:
    def __init__(self) -> None:
        self.model = Model()

    async def __call__(self, request: Request) -> dict[str, object]:
        data = await request.json()
        rows = np.array(data["features"], dtype=np.float32)
        prices = self.model.predict(rows)
        return {"predictions": prices.tolist(), "currency": "EUR"}

    def passes(self) -> list[tuple[int, ...]]:
        return self.model.passes


OneByOne = serve.deployment(num_replicas=1, name="OneByOne")(HousePrices)
Batched = serve.deployment(
    num_replicas=1,
    name="Batched",
    batching_config={
        "max_batch_size": 32,
        "timeout_s": 0.1,
        "stride_s": 0,
        "allow_small_batch": True,
    },
)(HousePrices)


@serve.deployment(
    num_replicas=1,
    # Configure dynamic batching
    batching_config={
        "max_batch_size": 32,  # Maximum number of requests to group
        "timeout_s": 0.1,  # Max time to wait for a batch to fill
        "stride_s": 0,  # Process batches as soon as they are ready
        "allow_small_batch": True,  # Allow batches smaller than max_batch_size
    },
)
class HousePricePredictor:
    """The article's class with its annotation; numpy stands for tensorflow."""

    def __init__(self) -> None:
        self.model = Model()

    async def __call__(self, request: HttpRequest) -> dict[str, object]:
        data = await request.json()
        input_data = np.array(data["features"], dtype=np.float32)
        # The predict method now receives a batch of inputs
        predictions = self.model.predict(input_data)
        return {"predictions": predictions.tolist()}

    def passes(self) -> list[tuple[int, ...]]:
        return self.model.passes
