"""How a deployment or an application is, since when, and how it was before. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """How a deployment or an application is, as ``health`` puts it.

    Attributes:
        word: Of the enumeration.
        since: Unix time from which on.
        former: The word before; "": nobody has seen it otherwise.
    """

    word: str
    since: float
    former: str = ""

    def becomes(self, word: str, now: float) -> Condition:
        """Return how it is when it is called ``word`` now."""
        return self if word == self.word else Condition(word, now, self.word)
