"""The service: what a user of pyserve writes beside the ``.proto``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import grpc
import numpy as np

import pyserve
from services.digits import digits_pb2, digits_pb2_grpc
from services.digits.model import INK, MODEL_PATH, PIXELS, Model
from services.digits.ordered import ordered

# A stream may have as many images on their way as one batch holds.
_BATCH_SIZE = 32


# Counts show all replicas at work; what is predicted fills the batches of one as long as that is
# as quick. Methods that the .proto marks may run again, so that no crash of a replica costs a call.
@pyserve.deployment(
    max_ongoing_requests=256, request_router_config={"policy": "p2c", "max_attempts": 3}
)
class Digits(digits_pb2_grpc.DigitsServicer):
    """Names the digit in an image; concurrent calls share one pass through the network."""

    def __init__(self, model_path: Path = MODEL_PATH) -> None:
        self._model = Model.load(model_path)

    @pyserve.batch(max_batch_size=_BATCH_SIZE, batch_wait_timeout_s=0.002)
    async def Classify(  # type: ignore[override]  # the batch makes lists of what it takes
        self, requests: list[digits_pb2.ClassifyRequest]
    ) -> list[digits_pb2.ClassifyReply | pyserve.Abort]:
        problems = [_problem(request.pixels) for request in requests]
        sound = [
            request.pixels
            for request, problem in zip(requests, problems, strict=True)
            if problem is None
        ]
        replies = iter(self._classify(sound))
        return [next(replies) if problem is None else problem for problem in problems]

    async def ClassifyStream(
        self,
        requests: AsyncIterator[digits_pb2.ClassifyRequest],
        context: grpc.aio.ServicerContext[digits_pb2.ClassifyRequest, digits_pb2.ClassifyReply],  # noqa: ARG002
    ) -> AsyncIterator[digits_pb2.ClassifyReply]:
        async with aclosing(ordered(requests, self.Classify, ahead_max=_BATCH_SIZE)) as replies:
            async for reply in replies:
                yield reply  # type: ignore[misc]  # an Abort of the batch is raised, not returned

    async def warmup(self) -> None:
        """Run the network once, so that the first caller does not pay for lazy initialisation."""
        self._model.probabilities(np.zeros((_BATCH_SIZE, PIXELS), dtype=np.uint8))

    def _classify(self, images: list[bytes]) -> list[digits_pb2.ClassifyReply]:
        if not images:
            return []
        stacked = np.frombuffer(b"".join(images), dtype=np.uint8).reshape(-1, PIXELS)
        probabilities = self._model.probabilities(stacked)
        labels = probabilities.argmax(axis=1).tolist()
        replica_id = pyserve.get_replica_context().replica_id
        return [
            digits_pb2.ClassifyReply(
                label=label, probabilities=row, replica_id=replica_id, batch_size=len(images)
            )
            for label, row in zip(labels, probabilities.tolist(), strict=True)
        ]


def _problem(pixels: bytes) -> pyserve.Abort | None:
    if len(pixels) != PIXELS:
        text = f"pixels: expected {PIXELS} bytes (8 x 8, row by row), got {len(pixels)}"
    elif max(pixels) > INK:
        text = f"pixels: expected values from 0 to {INK}, got {max(pixels)}"
    else:
        return None
    return pyserve.Abort(grpc.StatusCode.INVALID_ARGUMENT, text)


# mypy does not look at what class decorators return.
app = Digits.options(num_replicas=2).bind()  # type: ignore[attr-defined]
