"""The condition of a deployment or an application, since when, and the former one. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a deployment or an application, in the words of ``health``.

    Attributes:
        word: Of the enumeration.
        since: Unix time from which on.
        former: The word before; "": none is known.
    """

    word: str
    since: float
    former: str = ""

    def becomes(self, word: str, now: float) -> Condition:
        """Return the condition after an observation of ``word``."""
        return self if word == self.word else Condition(word, now, self.word)
