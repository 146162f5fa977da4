"""Continuous batching in virtual time. Pure: sequences come in, steps happen, tokens come out.

A step makes one token for each sequence whose prompt is done, and processes a chunk of the other
prompts. A sequence gets all the blocks that it will need when it is admitted, so that no sequence
has to be preempted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from pyserve.llm.models import Load
from pyserve.llm.simulated.blocks import Block, BlockPool
from pyserve.llm.simulated.language import block_hash, block_hashes


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of the simulated hardware.

    Attributes:
        prefill_tokens_per_s: Tokens of prompts per second.
        step_s: The minimal duration of a step, in seconds.
        step_s_per_request: The time that each decoding sequence adds to a step, in seconds.
        prefill_chunk: Tokens of prompts in one step, at most.
        max_running: Sequences in one step, at most.
        kv_tokens: Tokens that the KV cache has room for.
        block_size: Tokens in one block of it.
    """

    prefill_tokens_per_s: float = 8000.0
    step_s: float = 0.006
    step_s_per_request: float = 0.00035
    prefill_chunk: int = 2048
    max_running: int = 256
    kv_tokens: int = 524_288
    block_size: int = 16


@dataclass(eq=False, slots=True)
class Running:
    """A prompt that is continued.

    Attributes:
        prompt: Its tokens.
        answer: The tokens that it is going to get, at least one.
        priority: Smaller first.
        arrived: When it came.
        admitted: When it got its blocks; ``None``: it waits.
        began: When its prompt was done.
        cached: Tokens of the prompt that were found in the prefix cache.
        computed: Tokens whose keys and values are there.
        made: Tokens of the answer so far.
        is_over: All of them are made, or it was cancelled.
    """

    prompt: Sequence[int]
    answer: Sequence[int]
    priority: int = 0
    arrived: float = 0.0
    admitted: float | None = None
    began: float | None = None
    cached: int = 0
    computed: int = 0
    made: int = 0
    is_over: bool = False
    blocks: list[Block] = field(default_factory=list)
    full: int = 0  # Blocks that are full.
    fills_at: int = 0  # When so many tokens are computed, the next one is.
    hashes: list[bytes] | None = None  # Of the prompt.
    number: int = 0

    def before(self) -> tuple[int, int]:
        """Return what decides who comes first."""
        return self.priority, self.number

    @property
    def length(self) -> int:
        """How many tokens it will have in the end."""
        return len(self.prompt) + len(self.answer)


class Scheduler:
    """One engine.

    Args:
        rates: Of its hardware.
    """

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.pool = BlockPool(rates.kv_tokens // rates.block_size)
        self._waiting: list[Running] = []  # In the order in which they are admitted.
        # In the order in which they were admitted, and in which their prompts were done.
        self._prefilling: dict[Running, None] = {}
        self._decoding: dict[Running, None] = {}
        self._parts: dict[Running, int] = {}  # How much of each prompt is in the step that runs.
        self._ends_at: float | None = None
        self._numbers = count()

    @property
    def waiting(self) -> int:
        """How many sequences wait for their blocks."""
        return len(self._waiting)

    def fits(self, tokens: int) -> bool:
        """Say whether a sequence of so many tokens can ever be admitted."""
        return self._blocks_for(tokens) <= self.pool.count

    def add(self, sequence: Running, now: float) -> None:
        """Take a sequence, which ``fits``."""
        assert self.fits(sequence.length), "it would wait for ever"
        sequence.arrived = now
        sequence.number = next(self._numbers)
        insort(self._waiting, sequence, key=Running.before)
        if self._ends_at is None:
            self._begin(now)

    def cancel(self, sequence: Running) -> None:
        """End a sequence now; its blocks are free for the next step. Idempotent."""
        if sequence.is_over:
            return
        sequence.is_over = True
        if sequence.admitted is None:
            self._waiting.remove(sequence)
        else:
            self._leave(sequence)

    def next_at(self) -> float | None:
        """Return when the step that runs will end; ``None``: nothing is to be done."""
        return self._ends_at

    def advance(self, now: float) -> list[Running]:
        """End the steps that are due; return the sequences that have got tokens, in order."""
        grown: dict[Running, None] = {}
        while self._ends_at is not None and self._ends_at <= now:
            ended, self._ends_at = self._ends_at, None
            for sequence in self._end(ended):
                grown[sequence] = None
            self._begin(ended)
        return list(grown)

    def load(self) -> Load:
        """Return what there is to do."""
        size = self.rates.block_size
        used = self.pool.count - self.pool.free
        return Load(
            running_requests=self._count(),
            waiting_requests=len(self._waiting),
            running_tokens=used * size,
            waiting_tokens=sum(len(each.prompt) for each in self._waiting),
            max_tokens=self.pool.count * size,
            kv_cache_usage=used / self.pool.count if self.pool.count else 0.0,
        )

    # --- steps ------------------------------------------------------------------------------

    def _count(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    def _begin(self, now: float) -> None:
        while self._waiting and self._count() < self.rates.max_running:
            if not self._admit(self._waiting[0], now):
                break
            del self._waiting[0]
        if not self._count():
            return
        self._parts, left = {}, self.rates.prefill_chunk
        for sequence in self._prefilling:
            part = min(len(sequence.prompt) - sequence.computed, left)
            if part:
                self._parts[sequence] = part
                left -= part
        prefill = self.rates.prefill_chunk - left
        self._ends_at = (
            now
            + self.rates.step_s
            + self.rates.step_s_per_request * len(self._decoding)
            + prefill / self.rates.prefill_tokens_per_s
        )

    def _admit(self, sequence: Running, now: float) -> bool:
        size = self.rates.block_size
        if sequence.hashes is None:
            sequence.hashes = block_hashes(sequence.prompt, size)
        # The last token has to be computed in any case: the first of the answer follows from it.
        known = self.pool.find(sequence.hashes[: max(0, len(sequence.prompt) - 1) // size])
        needed = self._blocks_for(sequence.length) - len(known)
        blocks = self.pool.take(known, needed)
        if blocks is None:
            return False
        sequence.blocks, sequence.full = blocks, len(known)
        sequence.cached = sequence.computed = len(known) * size
        sequence.fills_at = sequence.cached + size
        sequence.admitted = now
        self._prefilling[sequence] = None
        return True

    def _end(self, now: float) -> list[Running]:
        grown = list(self._decoding)
        for sequence in grown:
            sequence.computed += 1  # The token before the one that is made.
            self._make(sequence)
        for sequence, part in self._parts.items():
            if sequence.is_over:
                continue
            sequence.computed += part
            if sequence.computed < len(sequence.prompt):
                if sequence.computed >= sequence.fills_at:
                    self._fill(sequence)
                continue
            sequence.began = now
            del self._prefilling[sequence]
            self._decoding[sequence] = None
            self._make(sequence)
            grown.append(sequence)
        return grown

    def _make(self, sequence: Running) -> None:
        """Give a sequence its next token."""
        sequence.made += 1
        if sequence.computed >= sequence.fills_at:
            self._fill(sequence)
        if sequence.made == len(sequence.answer):
            sequence.is_over = True
            self._leave(sequence)

    def _fill(self, sequence: Running) -> None:
        """Name the blocks that have become full."""
        size = self.rates.block_size
        assert sequence.hashes is not None, "it was admitted"
        hashes, prompt = sequence.hashes, sequence.prompt
        while sequence.computed >= (sequence.full + 1) * size:
            start = sequence.full * size
            parent = hashes[sequence.full - 1] if sequence.full else b""
            tokens = [*prompt[start : start + size]]
            if len(tokens) < size:
                first = max(0, start - len(prompt))
                tokens += sequence.answer[first : first + size - len(tokens)]
                hashes.append(block_hash(parent, tokens))
            self.pool.fill(sequence.blocks[sequence.full], hashes[sequence.full], parent, tokens)
            sequence.full += 1
        sequence.fills_at = (sequence.full + 1) * size

    def _leave(self, sequence: Running) -> None:
        self._prefilling.pop(sequence, None)
        self._decoding.pop(sequence, None)
        self.pool.leave(sequence.blocks)
        sequence.blocks = []

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.rates.block_size)
