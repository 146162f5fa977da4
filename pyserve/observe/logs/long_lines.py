"""Long lines that are objects of JSON, as applications with a logger of their own print them.

A cut through such a line would leave no object, and programs that read logs would lose its level
and its fields. So a log file gets it whole, and a terminal an object with shorter values.
"""

from __future__ import annotations

import json

from pyserve.config.control import OUTPUT_LINE_BYTES_MAX
from pyserve.observe.logs.formats import shortened


class LongLine(str):
    """The line that a terminal gets, which is short enough for it.

    Attributes:
        whole: The object as it was printed.
        prefix: What stands before the object, in the text too.
    """

    __slots__ = ("prefix", "whole")

    whole: str
    prefix: str

    def after(self, prefix: str) -> LongLine:
        """Return the same line with a prefix."""
        return _made(prefix + self, self.whole, prefix + self.prefix)


def long_line(text: str) -> LongLine | None:
    """Return the line for a long text; ``None`` if it is not an object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return _made(shortened(found, text, OUTPUT_LINE_BYTES_MAX), text, "")


def with_prefix(prefix: str, line: str) -> str:
    """Return a line with a prefix; a long one stays what it is."""
    return line.after(prefix) if isinstance(line, LongLine) else prefix + line


def _made(text: str, whole: str, prefix: str) -> LongLine:
    line = LongLine(text)
    line.whole, line.prefix = whole, prefix
    return line
