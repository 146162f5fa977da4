"""Sends images through the generated stub and sums up what came back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.digits import dataset, digits_pb2, digits_pb2_grpc

_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Answer:
    """One reply.

    Attributes:
        right: Whether the label is the image's.
        latency_s: From the call to its reply, at the client.
        replica_id: Who answered.
        batch_size: Images that were classified together.
    """

    right: bool
    latency_s: float
    replica_id: str
    batch_size: int


@dataclass(frozen=True)
class Summary:
    """The totals of a number of answers.

    Attributes:
        calls: Number of answers.
        accuracy: Share of right ones, 0 to 1.
        calls_per_s: Over the whole time.
        p50_ms: Median latency.
        p99_ms: Latency that one answer in a hundred exceeds.
        batch_size_mean: Images per batch, every batch counted once.
        calls_of_replica: Answers by replica.
    """

    calls: int
    accuracy: float
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    batch_size_mean: float
    calls_of_replica: dict[str, int]


async def send(
    stub: digits_pb2_grpc.DigitsAsyncStub, part: dataset.Part, *, rounds: int, concurrency: int
) -> list[Answer]:
    """Classify every image of a part, ``rounds`` times, with ``concurrency`` calls in flight.

    Raises:
        grpc.aio.AioRpcError: A call failed; the others are cancelled.
    """
    work = iter(
        [pair for _ in range(rounds) for pair in zip(part.images, part.labels, strict=True)]
    )
    answers: list[Answer] = []

    async def keep_sending() -> None:
        for pixels, label in work:
            begun_s = time.perf_counter()
            request = digits_pb2.ClassifyRequest(pixels=pixels.tobytes())
            reply = await stub.Classify(request, timeout=_TIMEOUT_S)
            latency_s = time.perf_counter() - begun_s
            right = reply.label == int(label)
            answers.append(Answer(right, latency_s, reply.replica_id, reply.batch_size))

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(keep_sending())
    return answers


def summarise(answers: Sequence[Answer], elapsed_s: float) -> Summary:
    """Sum up at least one answer."""
    latencies_ms = np.array([answer.latency_s for answer in answers]) * 1e3
    p50_ms, p99_ms = np.percentile(latencies_ms, [50, 99])
    # Each answer stands for its share of a batch.
    batches = sum(1 / answer.batch_size for answer in answers)
    return Summary(
        calls=len(answers),
        accuracy=sum(answer.right for answer in answers) / len(answers),
        calls_per_s=len(answers) / elapsed_s,
        p50_ms=float(p50_ms),
        p99_ms=float(p99_ms),
        batch_size_mean=len(answers) / batches,
        calls_of_replica=dict(sorted(Counter(answer.replica_id for answer in answers).items())),
    )
