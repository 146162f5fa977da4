"""Makes ``model.npz``: ``python -m services.digits.train``.

The layout and the penalty were chosen by accuracy on a fifth of the *training* images; the
held-out ones are only looked at in the last line that this prints.
"""

from __future__ import annotations

import numpy as np
from sklearn.neural_network import MLPClassifier

from services.digits import dataset
from services.digits.model import INK, MODEL_PATH, PIXELS, Model

_SIDE = 8
_HIDDEN = 128
_PENALTY = 1e-2
_EPOCHS_MAX = 500
_SEED = 0


def train(part: dataset.Part) -> Model:
    """Fit a model to the images of one part; the same part gives the same model."""
    images, labels = _with_shifts(part.images, part.labels)
    network = MLPClassifier((_HIDDEN,), alpha=_PENALTY, max_iter=_EPOCHS_MAX, random_state=_SEED)
    network.fit(images / INK, labels)
    (hidden_weights, output_weights), (hidden_bias, output_bias) = (
        [array.astype(np.float32) for array in arrays]
        for arrays in (network.coefs_, network.intercepts_)
    )
    return Model(hidden_weights, hidden_bias, output_weights, output_bias)


def accuracy(model: Model, part: dataset.Part) -> float:
    """Return the share of a part's images that the model names right."""
    named = model.probabilities(part.images).argmax(axis=1)
    return float((named == part.labels).mean())


def _with_shifts(
    images: dataset.Images, labels: dataset.Labels
) -> tuple[dataset.Images, dataset.Labels]:
    """Add each image moved by one pixel in four directions: writers do not centre their digits."""
    padded = np.pad(images.reshape(-1, _SIDE, _SIDE), ((0, 0), (1, 1), (1, 1)))
    moves = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    moved = [padded[:, top : top + _SIDE, left : left + _SIDE] for top, left in moves]
    return np.concatenate(moved).reshape(-1, PIXELS), np.tile(labels, len(moves))


def main() -> None:
    """Train, save and say how good it is."""
    split = dataset.load()
    model = train(split.train)
    model.save()
    size_kib = MODEL_PATH.stat().st_size / 1024
    print(f"{MODEL_PATH.name}: {size_kib:.0f} KiB")
    print(f"accuracy on {len(split.train.labels)} training images: "
          f"{accuracy(model, split.train):.2%}")  # fmt: skip
    print(f"accuracy on {len(split.held_out.labels)} held-out images: "
          f"{accuracy(model, split.held_out):.2%}")  # fmt: skip


if __name__ == "__main__":
    main()
