"""Checks of single values; every refusal names the field, the value and what is allowed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import cast

from pyserve.errors import OptionError


def refuse(field: str, value: object, allowed: str) -> OptionError:
    """Return the error for ``value``; the caller raises it."""
    return OptionError(f"{field}={value!r} is not allowed; allowed: {allowed}")


def check_integer(
    field: str, value: object, *, minimum: int, maximum: int | None = None, also: str = ""
) -> int:
    """Return ``value`` if it is a whole number in range; ``also`` names what else is allowed."""
    allowed = f"a whole number, at least {minimum}"
    if maximum is not None:
        allowed += f" and at most {maximum}"
    if also:
        allowed += f", or {also}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(field, value, allowed)
    if value < minimum or (maximum is not None and value > maximum):
        raise refuse(field, value, allowed)
    return value


def check_number(
    field: str, value: object, *, minimum: float, exclusive: bool = False, unit: str = ""
) -> float:
    """Return ``value`` as a float if it is finite and at least (or above) ``minimum``."""
    bound = "above" if exclusive else "at least"
    allowed = f"a number{' of ' + unit if unit else ''} {bound} {minimum:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(field, value, allowed)
    too_small = value <= minimum if exclusive else value < minimum
    if too_small or not math.isfinite(value):
        raise refuse(field, value, allowed)
    return float(value)


def check_seconds(field: str, value: object, *, exclusive: bool = False) -> float:
    """Return ``value`` as seconds, at least (or above) zero."""
    return check_number(field, value, minimum=0, exclusive=exclusive, unit="seconds")


def check_choice(field: str, value: object, choices: Sequence[str], *, also: str = "") -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(map(repr, choices)) + (f", or {also}" if also else "")
        raise refuse(field, value, allowed)
    return value


def check_text(field: str, value: object, allowed: str = "a text that is not empty") -> str:
    """Return ``value`` if it is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise refuse(field, value, allowed)
    return value


def check_flag(field: str, value: object) -> bool:
    """Return ``value`` if it is ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise refuse(field, value, "True or False")
    return value


def check_mapping(field: str, value: object) -> dict[str, object]:
    """Return a copy of ``value`` if it is a mapping with strings as keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refuse(field, value, "a mapping with strings as keys")
    return dict(cast("Mapping[str, object]", value))


def check_text_mapping(field: str, value: object) -> dict[str, str]:
    """Return a copy of ``value`` if it maps strings to strings."""
    mapping = check_mapping(field, value)
    if not all(isinstance(item, str) for item in mapping.values()):
        raise refuse(field, value, "a mapping of strings to strings")
    return cast("dict[str, str]", mapping)


def check_json(field: str, value: object) -> object:
    """Return ``value`` if ``json`` can write it without loss."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise refuse(field, value, f"what JSON can hold ({error})") from error
    return value
