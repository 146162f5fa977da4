"""Makes ``model.npz``: ``python -m services.letters.train``, on the pages of the guide.

The backward pass is written by hand, so that training too needs numpy alone;
``tests/services/test_letters.py`` checks the gradient by finite differences.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from services.letters.model import (
    CONTEXT,
    HEADS,
    MODEL_PATH,
    NORM_EPSILON,
    Floats,
    Transformer,
    log_softmax,
    weight_names,
)

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
ALPHABET = "\n !\"'()*,-./0123456789:;=?_`abcdefghijklmnopqrstuvwxyz"
_WIDTH = 48
_HIDDEN = 4 * _WIDTH
_LAYERS = 2
_SPREAD = 0.1  # Of the initial weights: a little less than one over the root of the width.
_BATCH = 24
_LENGTH = 96
_RATE = 4e-3
_WARM_STEPS = 50
_SEED = 0

Gradient = dict[str, Floats]


def guide_text() -> str:
    """Return the pages of the guide in lower case, without characters outside the alphabet."""
    pages = [path.read_text().lower() for path in sorted(GUIDE.glob("*.md"))]
    return "".join(each for each in "\n".join(pages) if each in ALPHABET)


def untrained(
    alphabet: str, seed: int, *, width: int = _WIDTH, hidden: int = _HIDDEN, layers: int = _LAYERS
) -> Transformer:
    """Return a model with random weights."""
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> Floats:
        return rng.normal(0.0, _SPREAD, shape)

    return Transformer(
        alphabet=alphabet,
        token_embedding=random(len(alphabet), width),
        position_embedding=random(CONTEXT, width),
        attention_norm=np.ones((layers, width)),
        attention_in=random(layers, width, 3 * width),
        attention_out=random(layers, width, width),
        mlp_norm=np.ones((layers, width)),
        mlp_in=random(layers, width, hidden),
        mlp_out=random(layers, hidden, width),
        final_norm=np.ones(width),
    )


@dataclass(frozen=True)
class _Norm:
    """The input and output scale of a norm, kept for the backward pass."""

    x: Floats
    scale: Floats
    gain: Floats

    @classmethod
    def forward(cls, x: Floats, gain: Floats) -> tuple[Floats, _Norm]:
        scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON)
        return x * scale * gain, cls(x, scale, gain)

    def backward(self, out: Floats) -> tuple[Floats, Floats]:
        """Return the gradients of ``x`` and of the gain."""
        unit = self.x * self.scale
        scaled = out * self.gain
        inner = scaled - unit * np.mean(scaled * unit, axis=-1, keepdims=True)
        return inner * self.scale, (out * unit).sum(axis=(0, 1))


@dataclass(frozen=True)
class _Layer:
    """Activations of one layer, kept for the backward pass."""

    attention_norm: _Norm
    attention_rows: Floats
    queries: Floats
    keys: Floats
    values: Floats
    weights: Floats
    mixture: Floats
    mlp_norm: _Norm
    mlp_rows: Floats
    hidden: Floats


def loss_and_gradient(model: Transformer, tokens: np.ndarray) -> tuple[float, Gradient]:
    """Return the mean cross-entropy of the predicted tokens, in nats, and its gradient.

    Args:
        model: The weights.
        tokens: Shape ``(batch, length + 1)``.
    """
    given, wanted = tokens[:, :-1], tokens[:, 1:]
    x = model.token_embedding[given] + model.position_embedding[: given.shape[1]]
    layers = []
    for number in range(len(model.attention_in)):
        x, layer = _forward(model, number, x)
        layers.append(layer)
    rows, final_norm = _Norm.forward(x, model.final_norm)
    logs = log_softmax(rows @ model.token_embedding.T)
    found = np.take_along_axis(logs, wanted[..., None], axis=-1)

    gradient = {name: np.zeros_like(getattr(model, name)) for name in weight_names()}
    out = np.exp(logs)
    np.put_along_axis(
        out, wanted[..., None], np.take_along_axis(out, wanted[..., None], -1) - 1.0, -1
    )
    out /= wanted.size
    gradient["token_embedding"] += np.tensordot(out, rows, axes=((0, 1), (0, 1)))
    back, gradient["final_norm"] = final_norm.backward(out @ model.token_embedding)
    for number in reversed(range(len(layers))):
        back = _backward(model, number, layers[number], back, gradient)
    np.add.at(gradient["token_embedding"], given, back)
    gradient["position_embedding"][: given.shape[1]] += back.sum(axis=0)
    return float(-found.mean()), gradient


def _forward(model: Transformer, number: int, x: Floats) -> tuple[Floats, _Layer]:
    rows, attention_norm = _Norm.forward(x, model.attention_norm[number])
    queries, keys, values = map(
        _split_heads, np.split(rows @ model.attention_in[number], 3, axis=-1)
    )
    length = x.shape[1]
    scores = queries @ keys.transpose(0, 1, 3, 2) / math.sqrt(queries.shape[-1])
    ahead = np.triu(np.full((length, length), -np.inf, x.dtype), k=1)
    weights = np.exp(log_softmax(scores + ahead))
    mixture = _merge_heads(weights @ values)
    x = x + mixture @ model.attention_out[number]
    mlp_rows, mlp_norm = _Norm.forward(x, model.mlp_norm[number])
    hidden = np.maximum(mlp_rows @ model.mlp_in[number], 0.0)
    return x + hidden @ model.mlp_out[number], _Layer(
        attention_norm, rows, queries, keys, values, weights, mixture, mlp_norm, mlp_rows, hidden
    )


def _backward(
    model: Transformer, number: int, layer: _Layer, back: Floats, gradient: Gradient
) -> Floats:
    """Store the gradient of one layer's weights, and return that of its input."""
    gradient["mlp_out"][number] = _weight_gradient(layer.hidden, back)
    hidden = (back @ model.mlp_out[number].T) * (layer.hidden > 0.0)
    gradient["mlp_in"][number] = _weight_gradient(layer.mlp_rows, hidden)
    inner, gradient["mlp_norm"][number] = layer.mlp_norm.backward(hidden @ model.mlp_in[number].T)
    back = back + inner
    gradient["attention_out"][number] = _weight_gradient(layer.mixture, back)
    mixture = _split_heads(back @ model.attention_out[number].T)
    weights = mixture @ layer.values.transpose(0, 1, 3, 2)
    scores = layer.weights * (weights - (weights * layer.weights).sum(axis=-1, keepdims=True))
    scores /= math.sqrt(layer.queries.shape[-1])
    parts = (
        scores @ layer.keys,
        scores.transpose(0, 1, 3, 2) @ layer.queries,
        layer.weights.transpose(0, 1, 3, 2) @ mixture,
    )
    mixed = np.concatenate([_merge_heads(part) for part in parts], axis=-1)
    gradient["attention_in"][number] = _weight_gradient(layer.attention_rows, mixed)
    inner, gradient["attention_norm"][number] = layer.attention_norm.backward(
        mixed @ model.attention_in[number].T
    )
    return back + inner


def _split_heads(rows: Floats) -> Floats:
    """Return rows as ``(batch, heads, length, features)``."""
    batch, length, _ = rows.shape
    return rows.reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)


def _merge_heads(parted: Floats) -> Floats:
    batch, _, length, _ = parted.shape
    return parted.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def _weight_gradient(rows: Floats, back: Floats) -> Floats:
    width = rows.shape[-1]
    return rows.reshape(-1, width).T @ back.reshape(-1, back.shape[-1])


class Adam:
    """Adam (Kingma and Ba, 2015), with decay rates of 0.9 and 0.99.

    Args:
        model: The model to train; its weights are cast to single precision, which is faster.
    """

    def __init__(self, model: Transformer) -> None:
        weights = {name: getattr(model, name).astype(np.float32) for name in weight_names()}
        self.model = replace(model, **weights)
        self._means = {name: np.zeros_like(each) for name, each in weights.items()}
        self._squares = {name: np.zeros_like(each) for name, each in weights.items()}
        self._steps = 0

    def step(self, tokens: np.ndarray, rate: float) -> float:
        """Update the weights on one batch, and return the loss before the update."""
        loss, gradient = loss_and_gradient(self.model, tokens)
        self._steps += 1
        changed = {}
        for name, slope in gradient.items():
            mean, square = self._means[name], self._squares[name]
            mean += 0.1 * (slope - mean)
            square += 0.01 * (slope * slope - square)
            unbiased = mean / (1.0 - 0.9**self._steps)
            spread = np.sqrt(square / (1.0 - 0.99**self._steps)) + 1e-8
            changed[name] = getattr(self.model, name) - np.float32(rate) * unbiased / spread
        self.model = replace(self.model, **changed)
        return loss


def train(text: str, steps: int, seed: int = _SEED) -> Transformer:
    """Train a model on a text, and print its loss every 100 steps."""
    optimiser = Adam(untrained(ALPHABET, seed))
    tokens = np.array(optimiser.model.encode(text))
    rng = np.random.default_rng(seed)
    losses = []
    for number in range(steps):
        # Every fourth batch has fewer, longer sequences, to train the later positions.
        length = _LENGTH if number % 4 else CONTEXT
        starts = rng.integers(0, len(tokens) - length - 1, _BATCH if number % 4 else _BATCH // 3)
        batch = tokens[starts[:, None] + np.arange(length + 1)]
        warm = min(1.0, (number + 1) / _WARM_STEPS)
        rate = _RATE * warm * 0.5 * (1.0 + np.cos(np.pi * number / steps))
        losses.append(optimiser.step(batch, rate))
        if number % 100 == 99:
            print(f"step {number + 1}: {np.mean(losses[-100:]) / np.log(2):.3f} bits a character")
    return optimiser.model


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(prog="python -m services.letters.train", description=__doc__)
    parser.add_argument("--steps", type=int, default=1800)
    options = parser.parse_args()
    train(guide_text(), options.steps).save()
    print(f"{MODEL_PATH.name}: {MODEL_PATH.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
