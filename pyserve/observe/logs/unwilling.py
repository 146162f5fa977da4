"""Formats records that are hard to write: values whose ``str`` raises or JSON lacks, colours.

User code logs such records when it fails, and just then a lost line would be missed.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable, Mapping

# Deeper containers, and those that contain themselves, are written as "...". Arbitrary; json's own
# encoder fails somewhat below the interpreter's limit, a thousand.
_DEPTH_MAX = 32
# Of each value of a line that is too long. Arbitrary; in JSON a character may take twelve bytes.
_CUT_CHARACTERS = (6000, 2000, 500, 100)
_STANDARD_NAMES = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
# Escape sequences that colour text at a terminal (ECMA-48, 8.3.117).
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def level_name(record: logging.LogRecord) -> str:
    """Return the name of a record's level, without colours that code has put into the names.

    ``logging.addLevelName`` changes them for the whole process.
    """
    name = record.levelname
    if "\x1b" not in name:
        return name
    return _STANDARD_NAMES.get(record.levelno) or _COLOUR.sub("", name)


def level_letter(record: logging.LogRecord) -> str:
    """Return the letter for the level in a line of text."""
    return next(filter(str.isalnum, level_name(record)), "?")


def text_of(value: object, make: Callable[[object], str] = str) -> str:
    """Return the text that ``make`` gives for a value, or a placeholder if it raises."""
    try:
        return make(value)
    except Exception:
        return f"<{type(value).__name__} without a text>"


def readable(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    """Return a record of the same event whose message says why the record's own cannot be had."""
    copied = copy.copy(record)
    arguments = f" with {text_of(record.args, repr)}" if record.args else ""
    copied.msg = (
        f"{text_of(record.msg)}{arguments} makes no message: {type(error).__name__}: "
        f"{text_of(error)} ({record.pathname}:{record.lineno})"
    )
    copied.args = None
    return copied


def json_of(values: Mapping[str, object]) -> str:
    """Return an object of JSON; what JSON has not is its text, which is so for keys too."""
    try:
        return json.dumps(values, default=str, allow_nan=False)
    except Exception:
        return json.dumps(_plain(values, frozenset()), default=str)


def shortened(values: Mapping[str, object], line: str, line_bytes_max: int) -> str:
    """Return an object of JSON whose line is not longer, with long values cut in the middle.

    Args:
        values: What the object has.
        line: The object as it is.
        line_bytes_max: The limit; a line is ASCII.
    """
    texts = {
        key: each if isinstance(each, str) else json_of({"": each}) for key, each in values.items()
    }
    for characters_max in _CUT_CHARACTERS:
        cut = {
            key: _without_middle(texts[key], characters_max)
            if len(texts[key]) > characters_max
            else each
            for key, each in values.items()
        }
        line = json_of(cut)
        if len(line) <= line_bytes_max:
            return line
    # Too many values: those of the record come first.
    while len(line) > line_bytes_max and cut:
        cut = dict(list(cut.items())[: len(cut) * 3 // 4])
        line = json_of(cut)
    return line


def _without_middle(text: str, characters_max: int) -> str:
    """Shorten a text; a traceback says most where it ends."""
    half = characters_max // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters cut) ... {text[-half:]}"


def _plain(value: object, above: frozenset[int]) -> object:
    if isinstance(value, Mapping | list | tuple):
        if len(above) >= _DEPTH_MAX or id(value) in above:
            return "..."
        above |= {id(value)}
        if isinstance(value, Mapping):
            return {_key(key): _plain(each, above) for key, each in tuple(value.items())}
        return [_plain(each, above) for each in value]
    try:
        json.dumps(value, default=str, allow_nan=False)
    except Exception:
        return text_of(value)
    return value


def _key(key: object) -> str | bool | None:
    return key if key is None or isinstance(key, str | bool) else text_of(key)
