"""The handwritten digits that ship inside scikit-learn, split once and for all.

Who trains uses ``train``; ``held_out`` is for judging what was trained, and for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.digits.model import PIXELS

HELD_OUT = 360  # a fifth of the 1 797 images
SPLIT_SEED = 1797  # arbitrary; another one makes another split, and another model

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Some of the images.

    Attributes:
        index: Which ones, as positions in scikit-learn's order; shape ``(n,)``.
        images: Shape ``(n, 64)``, values 0 to 16.
        labels: Shape ``(n,)``, values 0 to 9.
    """

    index: NDArray[np.int64]
    images: Images
    labels: Labels


@dataclass(frozen=True)
class Split:
    """Two parts that have no image in common and together hold all of them."""

    train: Part
    held_out: Part


def load() -> Split:
    """Read the images and split them; the same split every time."""
    from sklearn.datasets import load_digits  # Imported only here: it takes a second.

    digits = load_digits()
    images = digits.images.astype(np.uint8).reshape(-1, PIXELS)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))

    def part(index: NDArray[np.int64]) -> Part:
        return Part(index=index, images=images[index], labels=labels[index])

    return Split(train=part(order[HELD_OUT:]), held_out=part(order[:HELD_OUT]))
