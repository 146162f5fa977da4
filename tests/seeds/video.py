"""The notebook's video pipeline without its HTTP door: the orchestrators are called by handle."""

from collections.abc import AsyncIterator

import numpy as np

import pyserve as serve

FRAME_BYTES = 8192  # Twenty of them are more than what travels inline.


def _frames(first: int, count: int) -> list[np.ndarray]:
    return [np.full(FRAME_BYTES, number, dtype=np.uint8) for number in range(first, first + count)]


@serve.deployment
class WholeDecoder:
    async def decode(self, video_url: str, batch_size: int) -> list[list[np.ndarray]]:
        count = int(video_url.rpartition("/")[2])
        return [_frames(first, batch_size) for first in range(0, count, batch_size)]


@serve.deployment
class ChunkDecoder:
    async def decode(self, video_url: str, batch_size: int) -> AsyncIterator[list[np.ndarray]]:
        count = int(video_url.rpartition("/")[2])
        for first in range(0, count, batch_size):
            yield _frames(first, batch_size)


@serve.deployment
class WholeDetector:
    async def run(self, batches: list[list[np.ndarray]]) -> list[int]:
        return [int(frame[0]) for frames in batches for frame in frames]


@serve.deployment(num_replicas=2)
class ChunkDetector:
    async def run(self, frames: list[np.ndarray]) -> list[int]:
        return [int(frame[0]) for frame in frames]


@serve.deployment
class Concat:
    async def concat(self, output_path: str, *pieces: list[int]) -> tuple[str, list[int]]:
        return output_path, [number for piece in pieces for number in piece]


@serve.deployment
class NaiveOrchestration:
    def __init__(
        self,
        decode_video: serve.DeploymentHandle,
        fused_detect_encode: serve.DeploymentHandle,
    ) -> None:
        self.decode_video = decode_video
        self.fused_detect_encode = fused_detect_encode

    async def run(
        self, video_url: str, output_path: str, decode_batch_size: int = 20
    ) -> tuple[str, list[int]]:
        frames = await self.decode_video.decode.remote(video_url, decode_batch_size)
        return output_path, await self.fused_detect_encode.run.remote(frames)


@serve.deployment
class StreamingOrchestration:
    def __init__(
        self,
        decode_video: serve.DeploymentHandle,
        fused_detect_encode: serve.DeploymentHandle,
        concat_video: serve.DeploymentHandle,
    ) -> None:
        self.decode_video = decode_video.options(stream=True)
        self.fused_detect_encode = fused_detect_encode.options(_prefer_local_routing=True)
        self.concat_video = concat_video

    async def run(
        self, video_url: str, output_path: str, decode_batch_size: int = 20
    ) -> tuple[str, list[int]]:
        stream = self.decode_video.decode.remote(video_url, decode_batch_size)
        pieces = [
            self.fused_detect_encode.run.remote(frames)
            async for frames in await stream._to_object_ref_gen()
        ]
        film: tuple[str, list[int]] = await self.concat_video.concat.remote(output_path, *pieces)
        return film


naive = NaiveOrchestration.bind(WholeDecoder.bind(), WholeDetector.bind())
streaming = StreamingOrchestration.bind(ChunkDecoder.bind(), ChunkDetector.bind(), Concat.bind())
