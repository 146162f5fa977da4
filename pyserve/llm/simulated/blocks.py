"""The KV cache of the simulated engine: its blocks, their users and their contents. Pure.

An unused block keeps its contents until its place is needed; the least recently used block is
evicted first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from pyserve.llm.results import BlocksRemoved, BlocksStored, CacheEvent


@dataclass(eq=False, slots=True)
class Block:
    """A place for the keys and values of some tokens.

    Attributes:
        hash: Of its tokens and all before them; empty: it is not full, or another block has it.
        parent: The hash of the block before.
        tokens: What it holds, once it has a hash.
        users: Sequences that use it.
    """

    hash: bytes = b""
    parent: bytes = b""
    tokens: tuple[int, ...] = ()
    users: int = 0


class BlockPool:
    """All blocks of an engine.

    Args:
        count: How many there are.

    Attributes:
        events: What has changed in the prefix cache; the owner takes them out.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.events: list[CacheEvent] = []
        self._untouched = count  # Those that hold nothing and are not made yet.
        self._cached: dict[bytes, Block] = {}
        # Nobody uses them; in the order in which they were left.
        self._idle: OrderedDict[bytes, Block] = OrderedDict()

    @property
    def free(self) -> int:
        """How many blocks nobody uses."""
        return self._untouched + len(self._idle)

    @property
    def cached(self) -> int:
        """How many blocks can be found by their hashes."""
        return len(self._cached)

    def find(self, hashes: Sequence[bytes]) -> list[Block]:
        """Return the blocks of the longest part of a prompt's beginning that is here."""
        found: list[Block] = []
        for each in hashes:
            block = self._cached.get(each)
            if block is None:
                break
            found.append(block)
        return found

    def take(self, known: Sequence[Block], count: int) -> list[Block] | None:
        """Let a sequence use blocks.

        Args:
            known: Those that ``find`` returned.
            count: How many it needs beside them.

        Returns:
            All of them; ``None``: not so many are free.
        """
        idle = sum(1 for block in known if not block.users)
        if count > self.free - idle:
            return None
        for block in known:
            if not block.users:
                del self._idle[block.hash]
            block.users += 1
        return [*known, *(self._empty() for _ in range(count))]

    def _empty(self) -> Block:
        if self._untouched:
            self._untouched -= 1
        else:
            oldest, _ = self._idle.popitem(last=False)
            del self._cached[oldest]
            self.events.append(BlocksRemoved([oldest]))
        return Block(users=1)

    def fill(self, block: Block, hash_: bytes, parent: bytes, tokens: Sequence[int]) -> None:
        """Say what a block holds now that it is full; others may find it from now on."""
        if hash_ in self._cached:
            return
        block.hash, block.parent, block.tokens = hash_, parent, tuple(tokens)
        self._cached[hash_] = block
        self.events.append(BlocksStored([hash_], parent, block.tokens, len(block.tokens)))

    def leave(self, blocks: Sequence[Block]) -> None:
        """Let a sequence use its blocks no more."""
        # The end of a sequence is of less use to others than its beginning.
        for block in reversed(blocks):
            block.users -= 1
            if block.users:
                continue
            if block.hash:
                self._idle[block.hash] = block
            else:
                self._untouched += 1

    def snapshot(self) -> list[CacheEvent]:
        """Return all that is in the prefix cache, as it would have been reported."""
        return [
            BlocksStored([each.hash], each.parent, each.tokens, len(each.tokens))
            for each in self._cached.values()
        ]
