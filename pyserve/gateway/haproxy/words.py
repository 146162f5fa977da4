"""Words of HAProxy's configuration language, made from texts of users. Pure."""

from __future__ import annotations

import re

# Characters that need no quotes anywhere in the language; most paths and names have only these.
_PLAIN = re.compile(r"[A-Za-z0-9_./:@=,+~\-]")
# The characters that HAProxy allows in names of sections and servers, except the colon. It joins
# the parts of a name, so a part must not have one.
_OF_NAMES = re.compile(r"[A-Za-z0-9_.\-]")


def word(text: str) -> str:
    """Return one argument of a line that HAProxy reads as ``text``, whatever is in it.

    Raises:
        ValueError: it is empty or holds a NUL, which no argument can.
    """
    if not text or "\0" in text:
        raise ValueError(f"{text!r} cannot be an argument in a configuration of HAProxy")
    return "".join(map(_escaped, text))


def name(*parts: str) -> str:
    """Return the name of a section or a server; different parts give different names."""
    return ":".join("".join(map(_in_name, part)) for part in parts)


def seconds(time_s: float) -> str:
    """Return a time as HAProxy reads it, in whole milliseconds and at least one."""
    return f"{max(1, min(round(time_s * 1000), TIME_MAX_MS))}ms"


# The longest time that HAProxy takes is 2^31 - 1 ms; less, so that no timer of it wraps.
TIME_MAX_MS = 24 * 24 * 3600 * 1000
FOREVER = f"{TIME_MAX_MS}ms"


def _escaped(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def _in_name(character: str) -> str:
    if _OF_NAMES.fullmatch(character):
        return character
    # A replica is called Echo#k3f2x.
    return ":" if character == "#" else f":{ord(character):x}:"
