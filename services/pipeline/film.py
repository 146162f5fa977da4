"""The film that goes through the stages: a bright square that wanders over dark frames.

Nothing here waits or knows pyserve; the work is real but tiny, and what it costs in a real
pipeline is slept by the stages.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Four frames are 64 KiB, so chunks of them travel by reference.
SIDE = 128
SQUARE = 8
_BRIGHT = 255
_OUTLINE = 128
_STEP = 5  # Any odd number, so that the square visits many places.

Frames = NDArray[np.uint8]
Boxes = NDArray[np.int64]


@dataclass(frozen=True)
class Detected:
    """Frames of shape (count, SIDE, SIDE), and the square's top and left, shape (count, 2)."""

    frames: Frames
    boxes: Boxes


@dataclass(frozen=True)
class Film:
    """The end of the pipeline: how many frames, where the square was, and the packed bytes."""

    frames: int
    boxes: tuple[tuple[int, int], ...]
    packed: bytes


@dataclass(frozen=True)
class Piece:
    """A part of the film, packed."""

    boxes: Boxes
    packed: bytes


def place_of_square(frame: int) -> tuple[int, int]:
    """Return the top and left of the square in the frame of that number."""
    room = SIDE - SQUARE
    return frame * _STEP % room, frame * _STEP // room * _STEP % room


def decode(first: int, count: int) -> Frames:
    """Return the frames from ``first`` on, shape (count, SIDE, SIDE)."""
    frames = np.zeros((count, SIDE, SIDE), dtype=np.uint8)
    for index in range(count):
        top, left = place_of_square(first + index)
        frames[index, top : top + SQUARE, left : left + SQUARE] = _BRIGHT
    return frames


def detect(frames: Frames) -> Boxes:
    """Return where the square is in each frame."""
    brightest = frames.reshape(len(frames), -1).argmax(axis=1)
    return np.stack(np.divmod(brightest, SIDE), axis=1)


def encode(detected: Detected) -> Piece:
    """Mark the squares and pack the frames."""
    marked = detected.frames.copy()
    for frame, (top, left) in zip(marked, detected.boxes, strict=True):
        frame[top, left : left + SQUARE] = _OUTLINE
    return Piece(detected.boxes, zlib.compress(marked.tobytes(), level=1))


def join(pieces: tuple[Piece, ...]) -> Film:
    """Put the pieces together in their order."""
    boxes = [(int(top), int(left)) for piece in pieces for top, left in piece.boxes]
    return Film(len(boxes), tuple(boxes), b"".join(piece.packed for piece in pieces))
