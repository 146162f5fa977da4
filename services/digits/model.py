"""The classifier as the replicas run it: two layers, in numpy alone.

Nothing here trains, and nothing imports scikit-learn: a replica stays small and starts quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PIXELS = 64
INK = 16  # the value of a pixel that is all ink
LABELS = 10
MODEL_PATH = Path(__file__).with_name("model.npz")

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Model:
    """A perceptron with one hidden layer of rectified units.

    Attributes:
        hidden_weights: Shape ``(64, hidden)``.
        hidden_bias: Shape ``(hidden,)``.
        output_weights: Shape ``(hidden, 10)``.
        output_bias: Shape ``(10,)``.
    """

    hidden_weights: Floats
    hidden_bias: Floats
    output_weights: Floats
    output_bias: Floats

    @classmethod
    def load(cls, path: Path = MODEL_PATH) -> Model:
        """Read what ``save`` wrote.

        Raises:
            OSError: The file cannot be read.
            ValueError: It holds no model.
        """
        with np.load(path, allow_pickle=False) as arrays:
            missing = set(cls.__dataclass_fields__) - set(arrays.files)
            if missing:
                raise ValueError(f"{path} holds no model: it lacks {', '.join(sorted(missing))}")
            return cls(**{name: arrays[name] for name in cls.__dataclass_fields__})

    def save(self, path: Path = MODEL_PATH) -> None:
        """Write the weights, compressed."""
        arrays = {name: getattr(self, name) for name in self.__dataclass_fields__}
        np.savez_compressed(path, **arrays)

    def probabilities(self, images: NDArray[np.uint8]) -> Floats:
        """Return how probable each digit is, for images of shape ``(n, 64)``, as ``(n, 10)``."""
        ink = images.astype(np.float32) / np.float32(INK)
        hidden = np.maximum(ink @ self.hidden_weights + self.hidden_bias, 0)
        scores = hidden @ self.output_weights + self.output_bias
        # The largest score becomes 0: the exponential cannot overflow.
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        result: Floats = odds / odds.sum(axis=1, keepdims=True)
        return result
