"""Beam search as a state machine.

A search does not call the model: it has the sequences to extend, and takes the log probabilities of
their next tokens. So many searches share one forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.letters.model import Cache, Floats


@dataclass(eq=False)
class Beam:
    """One sequence.

    Attributes:
        tokens: The prompt and the continuation.
        cache: Holds a prefix of the tokens.
        log_probability: Of the continuation.
    """

    tokens: list[int]
    cache: Cache
    log_probability: float = 0.0

    def pending(self, most: int) -> list[int]:
        """Return the next tokens to append to the cache."""
        return self.tokens[self.cache.length : self.cache.length + most]


class Search:
    """The search of one request.

    Args:
        prompt: Its tokens, at least one.
        cache: An empty one.
        width: Most beams.
        max_tokens: Most tokens after the prompt.
        until: The token that ends a sequence; ``None``: only ``max_tokens`` does.

    Attributes:
        prompt_length: Number of tokens in the prompt.
        beams: The unfinished sequences, most probable first.
        best: The most probable finished sequence, if any.
        compared: Number of candidates in the last step.
    """

    def __init__(
        self, prompt: list[int], cache: Cache, *, width: int, max_tokens: int, until: int | None
    ) -> None:
        self.beams = [Beam(prompt, cache)]
        self.best: Beam | None = None
        self.compared = 0
        self._width = width
        self.prompt_length = len(prompt)
        self._length_max = len(prompt) + max_tokens
        self._until = until

    @property
    def has_ended(self) -> bool:
        """Whether no beam can still beat the best sequence; log probabilities only fall."""
        if not self.beams:
            return True
        best = self.best
        return best is not None and best.log_probability >= self.beams[0].log_probability

    @property
    def cost(self) -> int:
        """Tokens in the caches of all beams, including those about to be appended."""
        return sum(len(beam.tokens) for beam in self.beams)

    def advance(self, logs: Floats) -> None:
        """Extend the beams by one token.

        Args:
            logs: Log probabilities of the token after each beam; shape ``(beams, alphabet)``.
        """
        if self.beams[0].cache.length < len(self.beams[0].tokens):
            return  # The only beam is still reading the prompt.
        alphabet = logs.shape[1]
        totals = (np.array([[beam.log_probability] for beam in self.beams]) + logs).ravel()
        self.compared = len(totals)
        # At most one candidate per beam is finished, so at least `width` of these are not.
        chosen = np.argsort(-totals, kind="stable")[: self._width + len(self.beams)]
        parents = [divmod(int(each), alphabet) for each in chosen]
        following: list[Beam] = []
        reused: set[int] = set()
        for (parent, token), place in zip(parents, chosen, strict=True):
            total = float(totals[place])
            beam = self.beams[parent]
            tokens = [*beam.tokens, token]
            if token == self._until or len(tokens) == self._length_max:
                if self.best is None or total > self.best.log_probability:
                    self.best = Beam(tokens, beam.cache, total)
            elif len(following) < self._width:
                cache = beam.cache.copy() if parent in reused else beam.cache
                reused.add(parent)
                following.append(Beam(tokens, cache, total))
        self.beams = following
