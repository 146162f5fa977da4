"""Results of an engine's other methods, for engines to which a plain list is not enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyserve.llm.deltas import Usage
from pyserve.llm.v1 import engine_pb2

Vector: TypeAlias = Sequence[float]


@dataclass(slots=True)
class Embeddings:
    """The embeddings of a request.

    Attributes:
        values: One vector for each input, in the order of the inputs.
        usage: The tokens of the inputs; ``None``: not counted.
    """

    values: Sequence[Vector]
    usage: Usage | None = None

    def message(self) -> engine_pb2.EmbedResponse:
        """Return it for the wire."""
        return engine_pb2.EmbedResponse(
            embeddings=[engine_pb2.Embedding(values=each) for each in self.values],
            usage=None if self.usage is None else self.usage.message(),
        )


@dataclass(slots=True)
class Scores:
    """How well documents answer their queries.

    Attributes:
        values: In the order of the documents.
        usage: The tokens of all pairs; ``None``: not counted.
    """

    values: Sequence[float]
    usage: Usage | None = None

    def message(self) -> engine_pb2.ScoreResponse:
        """Return it for the wire."""
        usage = None if self.usage is None else self.usage.message()
        return engine_pb2.ScoreResponse(scores=self.values, usage=usage)


@dataclass(slots=True)
class Tokens:
    """A text as tokens.

    Attributes:
        ids: Their numbers.
        max_model_len: Of the model; 0: not known.
        strings: Their texts, if they were asked for.
    """

    ids: Sequence[int]
    max_model_len: int = 0
    strings: Sequence[str] = ()

    def message(self) -> engine_pb2.TokenizeResponse:
        """Return it for the wire."""
        return engine_pb2.TokenizeResponse(
            token_ids=self.ids, max_model_len=self.max_model_len, token_strs=self.strings
        )


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks of the prefix cache that are there now.

    Attributes:
        hashes: One after the other.
        parent: The block before the first; empty: they begin a prompt.
        token_ids: Of all of them; may be empty.
        block_size: Tokens in each.
    """

    hashes: Sequence[bytes]
    parent: bytes = b""
    token_ids: Sequence[int] = ()
    block_size: int = 0


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks of the prefix cache that are not there any more."""

    hashes: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class CacheCleared:
    """Nothing is in the prefix cache any more."""


CacheEvent: TypeAlias = BlocksStored | BlocksRemoved | CacheCleared


def cache_message(event: CacheEvent) -> engine_pb2.CacheEvent:
    """Return an event of the prefix cache for the wire."""
    match event:
        case BlocksStored(hashes, parent, token_ids, block_size):
            stored = engine_pb2.BlocksStored(
                hashes=hashes, parent=parent, token_ids=token_ids, block_size=block_size
            )
            return engine_pb2.CacheEvent(stored=stored)
        case BlocksRemoved(hashes):
            return engine_pb2.CacheEvent(removed=engine_pb2.BlocksRemoved(hashes=hashes))
        case CacheCleared():
            return engine_pb2.CacheEvent(cleared=engine_pb2.CacheCleared())
