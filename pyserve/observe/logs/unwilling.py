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
