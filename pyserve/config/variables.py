"""How the text of one environment variable becomes a value.

An empty variable counts as one that is not set. A value that cannot be used raises
``OptionError`` with the variable's name.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from pathlib import Path

from pyserve.config.validation import refuse

Variables = Mapping[str, str]


def switch(variables: Variables, name: str, *, default: bool = False) -> bool:
    """Read 1 as True and 0 as False."""
    value = variables.get(name, "")
    if value not in ("", "0", "1"):
        raise refuse(name, value, "1 for yes, 0 for no")
    return value == "1" if value else default


def seconds(variables: Variables, name: str, default: float, *, exclusive: bool = False) -> float:
    """Read a time of at least (or above) 0."""
    value = variables.get(name, "")
    try:
        time_s = float(value) if value else default
    except ValueError:
        time_s = math.nan
    if not 0 <= time_s < math.inf or (exclusive and time_s == 0):
        bound = "above" if exclusive else "of at least"
        raise refuse(name, value, f"a number of seconds {bound} 0")
    return time_s


def duration_seconds(variables: Variables, name: str, default: float) -> float:
    """Read a time above 0: a number of seconds, or one with the unit ``s`` or ``ms``."""
    value = variables.get(name, "")
    number, factor = value, 1.0
    if value.endswith("ms"):
        number, factor = value.removesuffix("ms"), 0.001
    elif value.endswith("s"):
        number = value.removesuffix("s")
    try:
        time_s = float(number) * factor if value else default
    except ValueError:
        time_s = math.nan
    if not 0 < time_s < math.inf:
        raise refuse(name, value, "a number of seconds above 0, or such as 5s or 250ms")
    return time_s


def number(variables: Variables, name: str, default: float, *, minimum: float) -> float:
    """Read a number of at least ``minimum``."""
    value = variables.get(name, "")
    try:
        found = float(value) if value else default
    except ValueError:
        found = math.nan
    if not minimum <= found < math.inf:
        raise refuse(name, value, f"a number of at least {minimum:g}")
    return found


def limit_seconds(variables: Variables, name: str, default: float | None) -> float | None:
    """Read a time limit; 0 is none."""
    return seconds(variables, name, 0.0 if default is None else default) or None


def whole(variables: Variables, name: str, *, minimum: int, maximum: int) -> int | None:
    """Read a whole number; None if it is not set."""
    value = variables.get(name, "")
    if not value:
        return None
    found = _whole_in(value, minimum, maximum)
    if found is None:
        raise refuse(name, value, f"a whole number from {minimum} to {maximum}")
    return found


def size_bytes(variables: Variables, name: str, *, maximum: int) -> int | None:
    """Read a size of at least one byte; None if it is not set."""
    value = variables.get(name, "")
    if not value:
        return None
    found = _whole_in(value, 1, maximum)
    if found is None:
        raise refuse(name, value, f"a number of bytes from 1 to {maximum}")
    return found


def mebibytes(variables: Variables, name: str, default: int, *, maximum: int) -> int:
    """Read a whole number of MiB, from 0 on, and return it in bytes."""
    found = whole(variables, name, minimum=0, maximum=maximum)
    return (default if found is None else found) << 20


def _whole_in(text: str, minimum: int, maximum: int) -> int | None:
    if not (text.isascii() and text.isdigit()):
        return None
    # Python refuses thousands of digits with an error of its own.
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) <= len(str(maximum)) else maximum + 1
    return number if minimum <= number <= maximum else None


def path(variables: Variables, name: str) -> Path | None:
    """Read an absolute path; a relative one is taken from the working directory."""
    return Path(variables[name]).absolute() if variables.get(name) else None


def host(variables: Variables, name: str) -> str | None:
    """Read an address, or a name that has one."""
    value = variables.get(name) or None
    if value is not None:
        try:
            value = value.strip("[]")
            socket.getaddrinfo(value, None)
        except (OSError, UnicodeError):
            allowed = "an address of this machine, such as 127.0.0.1 or 0.0.0.0, or a name with one"
            raise refuse(name, value, allowed) from None
    return value


def words(variables: Variables, name: str) -> tuple[str, ...]:
    """Read words with commas between them."""
    return tuple(word.strip() for word in variables.get(name, "").split(",") if word.strip())
