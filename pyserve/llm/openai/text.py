"""The text of one choice: in whole characters, and without stop sequences."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Text:
    """Joins the pieces of a choice's text, and ends it at a stop sequence.

    Args:
        stop: Texts that end the choice, and are not part of it.

    Attributes:
        is_stopped: One of them has come; what comes later is dropped.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(each for each in stop if each)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.is_stopped = False

    def take(self, text: str, text_bytes: bytes = b"", *, is_last: bool = False) -> str:
        """Return what is certain now: of a piece, and of what was held back before.

        Args:
            text: The piece.
            text_bytes: The piece, where it may end inside of a character.
            is_last: Nothing follows.
        """
        if self.is_stopped:
            return ""
        if text_bytes or is_last:
            text += self._decoder.decode(text_bytes, is_last)
        if not self._stop:
            return text
        found = self._held + text
        ends = [at for each in self._stop if (at := found.find(each)) >= 0]
        if ends:
            self.is_stopped = True
            self._held = ""
            return found[: min(ends)]
        kept = 0 if is_last else max(_overlap(found, each) for each in self._stop)
        self._held = found[len(found) - kept :]
        return found[: len(found) - kept]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of ``text`` begin ``stop``."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
