"""Times one film through a running pipeline, for the demonstration and the benchmark."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import pyserve
from services.pipeline.film import Film


@dataclass(frozen=True)
class Timing:
    """Seconds until the film was there, and until its first piece was.

    Attributes:
        naive_s: One stage after the other.
        streaming_runs_s: Chunk by chunk, once for each run.
        first_piece_s: Chunk by chunk, until the first piece was there.
    """

    naive_s: float
    streaming_runs_s: tuple[float, ...]
    first_piece_s: float

    @property
    def streaming_s(self) -> float:
        """Chunk by chunk, the median of the runs."""
        return statistics.median(self.streaming_runs_s)

    @property
    def ratio(self) -> float:
        """How many times faster chunks are."""
        return self.naive_s / self.streaming_s


async def measure(
    handle: pyserve.DeploymentHandle, *, frames: int, chunk_frames: int, runs: int = 1
) -> Timing:
    """Send the film both ways, one after the other; ``runs`` times chunk by chunk.

    Raises:
        AssertionError: The films differ.
    """
    # Connections and first imports are not the pipeline's time.
    await handle.streaming.remote(10 * chunk_frames, chunk_frames)
    naive_s, whole = await _timed(handle.naive.remote(frames))
    streaming_runs_s = []
    for _ in range(runs):
        streaming_s, joined = await _timed(handle.streaming.remote(frames, chunk_frames))
        assert (whole.frames, whole.boxes) == (joined.frames, joined.boxes), "the films differ"
        streaming_runs_s.append(streaming_s)
    first_piece_s = await _first_piece(handle, frames, chunk_frames)
    return Timing(naive_s, tuple(streaming_runs_s), first_piece_s)


async def _timed(response: pyserve.DeploymentResponse) -> tuple[float, Film]:
    begun = time.perf_counter()
    film: Film = await response
    return time.perf_counter() - begun, film


async def _first_piece(handle: pyserve.DeploymentHandle, frames: int, chunk_frames: int) -> float:
    begun = time.perf_counter()
    pieces = handle.pieces.options(stream=True).remote(frames, chunk_frames)
    await anext(pieces)
    first_s = time.perf_counter() - begun
    async for _ in pieces:
        pass
    return first_s
