"""Checks of single values; every refusal names the field, the value and what is allowed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import cast

from pyserve.errors import OptionError, OptionTypeError

# Whole numbers travel in 32 bits.
COUNT_MAX = 2**31 - 1
# The most that the router takes for a cost (`Cost::AMOUNT_MAX` in router_rs/core/src/cost.rs).
COST_MAX = 1e12
# A year: what is longer is a mistake of units, and far from what clocks can add.
SECONDS_MAX = 365 * 86_400.0
_SHOWN_LENGTH_MAX = 200


def refuse(field: str, value: object, allowed: str, *kinds: type) -> OptionError:
    """Return the error for ``value``; the caller raises it.

    Args:
        field: What messages call it.
        value: What was written.
        allowed: What may be written instead.
        kinds: As of ``option_error``.
    """
    return option_error(_refusal(field, value, allowed), value, *kinds)


def _refusal(field: str, value: object, allowed: str) -> str:
    return f"{field}={_shown(value)} is not allowed; allowed: {allowed}"


def option_error(text: str, value: object, *kinds: type) -> OptionError:
    """Return the error with a text of its own, a ``TypeError`` too where it is one.

    Args:
        text: The whole of it.
        value: What was written.
        kinds: The types of which some value is allowed. None: it is no question of types.
    """
    is_of_kind = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    return OptionError(text) if is_of_kind or not kinds else OptionTypeError(text)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # Thousands of digits, and whatever a user's class does.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}..."


def check_integer(
    field: str, value: object, *, minimum: int, maximum: int = COUNT_MAX, also: str = ""
) -> int:
    """Return ``value`` if it is a whole number in range; ``also`` names what else is allowed."""
    allowed = f"a whole number, at least {minimum} and at most {maximum}"
    if also:
        allowed += f", or {also}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(field, value, allowed, *((int, str) if also else (int,)))
    if not minimum <= value <= maximum:
        raise refuse(field, value, allowed)
    return value


def check_number(
    field: str,
    value: object,
    *,
    minimum: float,
    maximum: float = sys.float_info.max,
    exclusive: bool = False,
    unit: str = "",
) -> float:
    """Return ``value`` as a float if it is at least (or above) ``minimum`` and finite."""
    bound = "above" if exclusive else "at least"
    allowed = f"a number{' of ' + unit if unit else ''} {bound} {minimum:g}"
    if maximum < sys.float_info.max:
        allowed += f" and at most {_plain(maximum)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(field, value, allowed, int, float)
    # Not a number compares as false.
    if not minimum <= value <= maximum or (exclusive and value == minimum):
        raise refuse(field, value, allowed)
    return float(value)


def _plain(number: float) -> str:
    return str(int(number)) if number.is_integer() else f"{number:g}"


def check_seconds(
    field: str, value: object, *, maximum: float = SECONDS_MAX, exclusive: bool = False
) -> float:
    """Return ``value`` as seconds, at least (or above) zero and at most a year."""
    return check_number(
        field, value, minimum=0, maximum=maximum, exclusive=exclusive, unit="seconds"
    )


def check_choice(field: str, value: object, choices: Sequence[str], *, also: str = "") -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(map(repr, choices)) + (f", or {also}" if also else "")
        raise refuse(field, value, allowed, str)
    return value


def check_text(field: str, value: object, allowed: str = "a text that is not empty") -> str:
    """Return ``value`` if it is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise refuse(field, value, allowed, str)
    return value


def check_import_path(field: str, value: object) -> str:
    """Return ``module:attribute`` of an import path, which may have dots all the way too."""
    text = check_text(field, value, "an import path, module:function")
    module, separator, attribute = text.rpartition(":" if ":" in text else ".")
    parts = [*module.split("."), *attribute.split(".")]
    if not separator or not all(part.isidentifier() for part in parts):
        raise refuse(field, value, "an import path, module:function")
    return f"{module}:{attribute}"


def check_flag(field: str, value: object) -> bool:
    """Return ``value`` if it is ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise refuse(field, value, "True or False", bool)
    return value


def check_switch(field: str, value: object) -> bool:
    """Return a flag that may be written as a text, as on a command line."""
    found = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    is_on = found.get(str(value).lower())
    if is_on is None:
        raise refuse(field, value, "true or false")
    return is_on


def check_mapping(field: str, value: object) -> dict[str, object]:
    """Return a copy of ``value`` if it is a mapping with strings as keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionTypeError(_refusal(field, value, "a mapping with strings as keys"))
    return dict(cast("Mapping[str, object]", value))


def check_text_mapping(field: str, value: object) -> dict[str, str]:
    """Return a copy of ``value`` if it maps strings to strings."""
    mapping = check_mapping(field, value)
    if not all(isinstance(item, str) for item in mapping.values()):
        raise OptionTypeError(_refusal(field, value, "a mapping of strings to strings"))
    return cast("dict[str, str]", mapping)


def check_json(field: str, value: object) -> object:
    """Return ``value`` if ``json`` can write it without loss."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise refuse(field, value, f"what JSON can hold ({error})") from error
    return value
