"""Whole numbers beyond 64 bits, which orjson does not write and reads as floats."""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from pyserve.bridge import has_digits
from pyserve.serializers.deep_json import fields_of, in_parts

# Numbers beyond 64 bits have at least this many digits, as do some smaller ones.
_DIGITS_MIN = len(str(-(2**63))) - 1
# Neither the digits of a fraction, nor a number with a fraction or an exponent.
_LONG_NUMBER = re.compile(rb"(?<![\d.])[1-9]\d{%d,}+(?![.eE])" % (_DIGITS_MIN - 1))
_RANGE = range(-(2**63), 2**64)
_MAPPINGS = (dict, Mapping)
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)


def may_have_long_number(text: bytes | bytearray) -> bool:
    """Return whether Python's parser must read a JSON text, so that no digits are lost.

    Long numbers inside its strings count too, which only costs time.
    """
    # The pattern takes many times longer.
    return has_digits(text, _DIGITS_MIN) and _LONG_NUMBER.search(text) is not None


def is_refusal_of_long_number(error: TypeError) -> bool:
    """Return whether orjson refuses a value because of a whole number beyond 64 bits."""
    return "64-bit" in str(error)


def dumps_long_numbers(value: object, default: Callable[[Any], Any], options: int) -> bytes:
    """Return what ``orjson.dumps`` would if it could write every whole number.

    Raises:
        TypeError: There is something else in it that it cannot write.
    """

    def simplified(unknown: Any) -> Any:
        return in_parts(_spelt(default(unknown)), dumps)

    def dumps(spelt: Any) -> bytes:
        return orjson.dumps(spelt, simplified, options)

    try:
        return dumps(in_parts(_spelt(value), dumps))
    except (RecursionError, ValueError) as error:  # rings; more digits than Python writes
        raise TypeError(str(error)) from None


def _spelt(value: Any) -> Any:
    """Return the value with its long numbers as pieces of JSON."""
    if isinstance(value, enum.Enum):
        return _spelt(value.value)
    if isinstance(value, int):
        return value if value in _RANGE else orjson.Fragment(int.__repr__(value))
    if isinstance(value, _MAPPINGS):
        return {_spelt_key(key): _spelt(each) for key, each in value.items()}
    if isinstance(value, _SEQUENCES):
        return [_spelt(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _spelt(each) for name, each in fields_of(value).items()}
    return value


def _spelt_key(key: Any) -> Any:
    if isinstance(key, int) and key not in _RANGE:
        return int.__repr__(key)
    return key
