"""A transformer of characters with a key-value cache, in numpy alone.

A decoder-only transformer (Vaswani et al., 2017) with pre-norm blocks, RMSNorm (Zhang and Sennrich,
2019) and tied embeddings. One call of ``extend`` takes tokens of many sequences: the linear layers
run once for all of them, and each sequence attends to its own cache. ``train`` makes the weights.

It computes in float64. BLAS sums in an order that depends on the number of rows, so results differ
in the last bits with the batch; in float64 that is too little to change a sampled token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HEADS = 4
CONTEXT = 256
MODEL_PATH = Path(__file__).with_name("model.npz")
NORM_EPSILON = 1e-5  # That of most models of this form.
_CAPACITY_MIN = 16

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Transformer:
    """The weights. Those of the layers have the layer as their first dimension.

    Attributes:
        alphabet: The characters; the index of each is its token.
        token_embedding: Shape ``(alphabet, width)``.
        position_embedding: Shape ``(context, width)``.
        attention_norm: Shape ``(layers, width)``.
        attention_in: Queries, keys and values; shape ``(layers, width, 3 * width)``.
        attention_out: Shape ``(layers, width, width)``.
        mlp_norm: Shape ``(layers, width)``.
        mlp_in: Shape ``(layers, width, hidden)``.
        mlp_out: Shape ``(layers, hidden, width)``.
        final_norm: Shape ``(width,)``.
    """

    alphabet: str
    token_embedding: Floats
    position_embedding: Floats
    attention_norm: Floats
    attention_in: Floats
    attention_out: Floats
    mlp_norm: Floats
    mlp_in: Floats
    mlp_out: Floats
    final_norm: Floats

    @classmethod
    def load(cls, path: Path = MODEL_PATH) -> Transformer:
        """Read what ``save`` wrote.

        Raises:
            OSError: The file cannot be read.
            ValueError: It holds no model.
        """
        with np.load(path, allow_pickle=False) as arrays:
            missing = set(cls.__dataclass_fields__) - set(arrays.files)
            if missing:
                raise ValueError(f"{path} holds no model: it lacks {', '.join(sorted(missing))}")
            alphabet = str(arrays["alphabet"])
            return cls(alphabet, *(arrays[name].astype(np.float64) for name in weight_names()))

    def save(self, path: Path = MODEL_PATH) -> None:
        """Write the weights in half precision, compressed."""
        arrays = {name: getattr(self, name).astype(np.float16) for name in weight_names()}
        np.savez_compressed(path, alphabet=np.array(self.alphabet), **arrays)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text.

        Raises:
            ValueError: A character is not in the alphabet.
        """
        tokens = [self.alphabet.find(character) for character in text]
        if -1 in tokens:
            unknown = text[tokens.index(-1)]
            raise ValueError(f"the model does not know {unknown!r}; it knows {self.alphabet!r}")
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return "".join(self.alphabet[token] for token in tokens)

    def new_cache(self) -> Cache:
        """Return the cache of an empty sequence."""
        layers, width, _ = self.attention_out.shape
        return Cache(layers, width)

    def extend(self, parts: Sequence[tuple[Cache, Sequence[int]]]) -> Floats:
        """Append tokens to sequences, at least one to each.

        Args:
            parts: The cache of each sequence, and the tokens to append to it.

        Returns:
            Log probabilities of the token after each part; shape ``(parts, alphabet)``.

        Raises:
            ValueError: A sequence would be longer than the context.
        """
        places = [cache.length + at for cache, tokens in parts for at in range(len(tokens))]
        if max(places) >= len(self.position_embedding):
            raise ValueError(f"a sequence has at most {len(self.position_embedding)} characters")
        flat = [token for _, tokens in parts for token in tokens]
        x = self.token_embedding[flat] + self.position_embedding[places]
        ends = np.cumsum([len(tokens) for _, tokens in parts])
        for layer in range(len(self.attention_in)):
            mixed = normed(x, self.attention_norm[layer]) @ self.attention_in[layer]
            attended = [
                cache.attend(layer, rows)
                for (cache, _), rows in zip(parts, np.split(mixed, ends[:-1]), strict=True)
            ]
            x = x + np.concatenate(attended) @ self.attention_out[layer]
            hidden = np.maximum(normed(x, self.mlp_norm[layer]) @ self.mlp_in[layer], 0.0)
            x = x + hidden @ self.mlp_out[layer]
        for cache, tokens in parts:
            cache.length += len(tokens)
        return log_softmax(normed(x[ends - 1], self.final_norm) @ self.token_embedding.T)


class Cache:
    """Keys and values of one sequence; the capacity doubles as it grows.

    Attributes:
        length: Number of tokens in it.
    """

    def __init__(self, layers: int, width: int) -> None:
        self.length = 0
        self._keys = np.empty((layers, HEADS, _CAPACITY_MIN, width // HEADS))
        self._values = np.empty_like(self._keys)

    def copy(self) -> Cache:
        """Return an independent copy."""
        copied = object.__new__(Cache)
        copied.length = self.length
        copied._keys, copied._values = self._keys.copy(), self._values.copy()
        return copied

    def attend(self, layer: int, mixed: Floats) -> Floats:
        """Store keys and values of new tokens, and return their attention output.

        Args:
            layer: Index of the layer.
            mixed: Queries, keys and values side by side; shape ``(tokens, 3 * width)``.

        Returns:
            Shape ``(tokens, width)``.
        """
        count, before = len(mixed), self.length
        after = before + count
        self._reserve(after)
        queries, keys, values = (
            part.reshape(count, HEADS, -1).transpose(1, 0, 2) for part in np.split(mixed, 3, axis=1)
        )
        self._keys[layer, :, before:after] = keys
        self._values[layer, :, before:after] = values
        scores = queries @ self._keys[layer, :, :after].transpose(0, 2, 1)
        scores /= math.sqrt(queries.shape[-1])
        if count > 1:  # The causal mask.
            scores += np.triu(np.full((count, after), -np.inf), k=before + 1)
        mixture = np.exp(log_softmax(scores)) @ self._values[layer, :, :after]
        return mixture.transpose(1, 0, 2).reshape(count, -1)

    def _reserve(self, length: int) -> None:
        layers, heads, capacity, width = self._keys.shape
        if length > capacity:
            more = np.empty((layers, heads, max(length, 2 * capacity) - capacity, width))
            self._keys = np.concatenate([self._keys, more], axis=2)
            self._values = np.concatenate([self._values, more], axis=2)


def weight_names() -> list[str]:
    """Return the names of the fields that are weights, in their order."""
    return [name for name in Transformer.__dataclass_fields__ if name != "alphabet"]


def normed(x: Floats, gain: Floats) -> Floats:
    """Return RMSNorm of the rows."""
    scaled: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON) * gain
    return scaled


def log_softmax(scores: Floats) -> Floats:
    """Return log probabilities over the last dimension."""
    shifted: Floats = scores - scores.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def sample(logs: Floats, temperature: float, rng: np.random.Generator) -> int:
    """Sample a token; a temperature of 0 takes the most probable one."""
    if temperature == 0.0:
        return int(logs.argmax())
    scaled = (logs - logs.max()) / temperature
    reached = np.exp(scaled).cumsum()
    return int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
