"""The stages as deployments, and two ways to lead a film through them.

A stage sleeps as long as its real counterpart would compute, scaled down by ten: a film of 800
frames takes 0.4 s to decode, 3.8 s to search and 2.4 s to encode, which is 6.6 s one after the
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pyserve
from services.digits.ordered import ordered
from services.pipeline import film
from services.pipeline.film import Detected, Film, Frames, Piece

FRAMES = 800
CHUNK_FRAMES = 20
# More than the stages can hold, so that reading ahead never waits for them.
_CHUNKS_AHEAD = 32
_PREDICT_REPLICAS = 4
_ENCODE_REPLICAS = 3
_CHUNKS_EACH = 2  # A replica works on so many at once.


@dataclass(frozen=True)
class Pace:
    """What one frame costs in each stage."""

    decode_ms: float = 0.5
    predict_ms: float = 4.75
    encode_ms: float = 3.0

    def naive_s(self, frames: int) -> float:
        """Return how long the stages take one after the other."""
        return frames * (self.decode_ms + self.predict_ms + self.encode_ms) / 1000

    def slowest_stage_s(self, frames: int) -> float:
        """Return how long the slowest stage takes with all its replicas."""
        predict_ms = self.predict_ms / (_PREDICT_REPLICAS * _CHUNKS_EACH)
        encode_ms = self.encode_ms / (_ENCODE_REPLICAS * _CHUNKS_EACH)
        return frames * max(self.decode_ms, predict_ms, encode_ms) / 1000


@pyserve.deployment
class Decode:
    """Makes frames; as a stream, the first chunk is out while the next one is made."""

    def __init__(self, pace: Pace) -> None:
        self._frame_s = pace.decode_ms / 1000

    async def whole(self, frames: int) -> Frames:
        await asyncio.sleep(frames * self._frame_s)
        return film.decode(0, frames)

    async def chunks(self, frames: int, chunk_frames: int) -> AsyncIterator[Frames]:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for first in range(0, frames, chunk_frames):
            count = min(chunk_frames, frames - first)
            # By a schedule, so that sleeps that end late do not add up.
            due += count * self._frame_s
            await asyncio.sleep(due - loop.time())
            yield film.decode(first, count)


@pyserve.deployment(num_replicas=_PREDICT_REPLICAS, max_ongoing_requests=_CHUNKS_EACH)
class Predict:
    """Finds the square in each frame, two chunks at a time in each replica."""

    def __init__(self, pace: Pace) -> None:
        self._frame_s = pace.predict_ms / 1000

    async def __call__(self, frames: Frames) -> Detected:
        await asyncio.sleep(len(frames) * self._frame_s)
        return Detected(frames, film.detect(frames))


@pyserve.deployment(num_replicas=_ENCODE_REPLICAS, max_ongoing_requests=_CHUNKS_EACH)
class Encode:
    """Packs frames, two chunks at a time in each replica."""

    def __init__(self, pace: Pace) -> None:
        self._frame_s = pace.encode_ms / 1000

    async def __call__(self, detected: Detected) -> Piece:
        await asyncio.sleep(len(detected.frames) * self._frame_s)
        return film.encode(detected)


@pyserve.deployment
class Join:
    """Makes a film of its pieces."""

    def __call__(self, *pieces: Piece) -> Film:
        return film.join(pieces)


@pyserve.deployment
class Pipeline:
    """Leads a film through the stages."""

    def __init__(
        self,
        decode: pyserve.DeploymentHandle,
        predict: pyserve.DeploymentHandle,
        encode: pyserve.DeploymentHandle,
        join: pyserve.DeploymentHandle,
    ) -> None:
        self._decode = decode
        self._chunks = decode.chunks.options(stream=True)
        self._predict = predict
        self._encode = encode
        self._join = join

    async def naive(self, frames: int = FRAMES) -> Film:
        """Each stage waits for the whole film."""
        decoded = await self._decode.whole.remote(frames)
        detected = await self._predict.remote(decoded)
        piece = await self._encode.remote(detected)
        result: Film = await self._join.remote(piece)
        return result

    async def streaming(self, frames: int = FRAMES, chunk_frames: int = CHUNK_FRAMES) -> Film:
        """Each chunk goes on as soon as it is there; only references come through here."""
        chunks = await self._decoded(frames, chunk_frames)
        pieces = [self._packed(chunk) async for chunk in chunks]
        result: Film = await self._join.remote(*pieces)
        return result

    async def pieces(
        self, frames: int = FRAMES, chunk_frames: int = CHUNK_FRAMES
    ) -> AsyncIterator[Piece]:
        """Stream the packed pieces in their order, the first one long before the last."""
        chunks = await self._decoded(frames, chunk_frames)
        async with aclosing(ordered(chunks, self._packed, ahead_max=_CHUNKS_AHEAD)) as pieces:
            async for piece in pieces:
                yield piece

    async def _decoded(self, frames: int, chunk_frames: int) -> AsyncIterator[pyserve.ObjectRef]:
        stream: pyserve.DeploymentResponseGenerator = self._chunks.remote(frames, chunk_frames)
        return await stream._to_object_ref_gen()  # noqa: SLF001  # its name in Ray Serve

    def _packed(self, chunk: pyserve.ObjectRef) -> pyserve.DeploymentResponse:
        packed: pyserve.DeploymentResponse = self._encode.remote(self._predict.remote(chunk))
        return packed


def build(pace: Pace | None = None) -> pyserve.Application:
    """Return the application; ``pace`` says how long the stages take."""
    chosen = pace or Pace()
    stages = [_bound(stage, chosen) for stage in (Decode, Predict, Encode)]
    return _bound(Pipeline, *stages, _bound(Join))


# mypy does not look at what class decorators return, so it sees classes here.
def _bound(deployment: Any, *arguments: object) -> pyserve.Application:
    application: pyserve.Application = deployment.bind(*arguments)
    return application


app = build()
