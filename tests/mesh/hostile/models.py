"""Two models that say how much they were given; one takes more than the other."""

from __future__ import annotations

import numpy as np

import pyserve
from pyserve import inference
from pyserve.inference import Tensor


class _Sizes:
    def infer(self, bytes: np.ndarray) -> dict[str, np.ndarray]:  # noqa: A002  # the tensor's name
        return {"size": np.array([bytes.size], dtype=np.int64)}


_INPUTS = [Tensor("bytes", "UINT8", (-1,))]
_OUTPUTS = [Tensor("size", "INT64", (1,))]


@pyserve.deployment(max_receive_message_bytes=8 << 20)
@inference.model(name="large", inputs=_INPUTS, outputs=_OUTPUTS)
class Large(_Sizes):
    pass


@pyserve.deployment
@inference.model(name="small", inputs=_INPUTS, outputs=_OUTPUTS)
class Small(_Sizes):
    pass


@pyserve.deployment
class Root:
    """Holds both, so that they are one application."""

    def __init__(self, *models: pyserve.DeploymentHandle) -> None:
        self.models = models

    async def __call__(self, body: bytes) -> int:
        return len(body)


app = Root.bind(Large.bind(), Small.bind())
