"""The codec ``json``, also called ``orjson`` after the library that does the work.

Python's values change as JSON requires: tuples become lists, dataclasses and numpy arrays become
objects and lists, dates become texts, NaN and infinity become null. Keys must be texts: a key ``1``
is refused, since it would come back as ``"1"``. Integers beyond 64 bits are refused too, since many
readers round them. Such integers from other writers keep their digits when they are read, and
numbers beyond a float are refused.

``orjson`` turns whole numbers beyond 64 bits into floats, and does not read UTF-16. It rightly
refuses numbers beyond a float and lone surrogates. Python's parser reads long numbers and deep
nesting exactly; it accepts the others, so they are refused here.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

import orjson

from pyserve.bridge import has_digits
from pyserve.serializers.base import Buffer, Parts, ValueCodec, garbled, refusal


class JsonCodec(ValueCodec):
    """Carries what JSON can say, for clients in any language."""

    name = "json"

    def encode(self, value: object) -> Parts:
        """Return the text of ``value`` in UTF-8; see ``Codec``."""
        try:
            return [orjson.dumps(value, _simplified, orjson.OPT_SERIALIZE_NUMPY)]
        except (TypeError, ValueError, RecursionError) as error:
            raise refusal(self.name, value, _advice(error)) from error

    def decode(self, body: Buffer) -> object:
        """Return the value of a text; see ``Codec``."""
        try:
            value = orjson.loads(body)
            text = bytes(body) if isinstance(body, memoryview) else body
            return read_exactly(text) if may_have_long_number(text) else value
        except (ValueError, RecursionError, MemoryError) as error:
            raise garbled(self.name, body, error) from error


def _simplified(value: object) -> object:
    """Return a replacement for a value that orjson does not know; TypeError if there is none."""
    # Arrays that orjson leaves to us are not contiguous.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return value.tolist()
    if isinstance(value, tuple):  # a named one
        return list(value)
    raise TypeError(f"{type(value).__qualname__} is not JSON; use msgpack or pickle")


def _advice(error: BaseException) -> str:
    # orjson wraps what our function raised in a text that says less.
    return str(error.__cause__ or error)


_SHOWN_MAX: Final = 40
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"\x78\x01": "deflate", b"\x78\x9c": "deflate"}


def read_exactly(text: bytes | bytearray) -> Any:
    """Return the value of a JSON text in UTF-8, 16 or 32, by Python's parser.

    Raises:
        ValueError: It is not JSON, or has values that cannot be written as JSON again.
            ``json.JSONDecodeError`` if the place is known.
        RecursionError: It is nested too deeply.
    """
    encoding = _COMPRESSED.get(bytes(text[:2]))
    if encoding is not None:
        raise ValueError(f"it is compressed by {encoding}: send it without content-encoding")
    decoded = text.decode(json.detect_encoding(text))
    value = json.loads(decoded, parse_constant=_refuse_constant, parse_float=_finite)
    if _SURROGATE.search(decoded):
        _refuse_half_letters(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    """Python's parser takes these as its own, and no other one has to."""
    raise ValueError(f"{name} is not JSON (RFC 8259, 6): send null, or a text")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
        raise ValueError(f"the number {shown} is beyond 1.8e308: send a smaller one, or a text")
    return value


def _refuse_half_letters(value: Any) -> None:
    """Refuse texts that no encoding has: of a pair of surrogates one is missing."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise ValueError(
            f"a text has \\u{half:04x} alone, half of a letter: send both halves"
        ) from None


# Whole numbers beyond 64 bits, which orjson does not write and reads as floats.

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


# Writes JSON that is nested too deeply for `orjson`, which reads four times as deep.

# orjson stops at 254. Around a piece of JSON it has room for 64 closing brackets of lists and
# writes all others beyond its buffer (seen with 3.13: the process aborts), so this is far below.
_STEP = 16
# A bound for values that contain themselves. Arbitrary, and far more than any parser reads.
_LEVELS_MAX = 50_000
_CONTAINERS = (dict, list, tuple)


def is_refusal_of_depth(error: TypeError) -> bool:
    """Return whether orjson refuses a value because of its nesting."""
    return str(error) == "Recursion limit reached"


def in_parts(value: Any, dumps: Callable[[Any], bytes]) -> Any:
    """Return a value in which deeply nested containers are replaced by pieces of JSON.

    Containers are dicts, lists, tuples and dataclasses.

    The innermost parts are written first, and their containers then hold the pieces.

    Args:
        value: the value to write; it is returned itself if it is not nested deeply.
        dumps: writes a part, which is not nested deeply.

    Raises:
        TypeError: The nesting is endless, or ``dumps`` cannot write a part.
    """
    pieces: dict[int, orjson.Fragment] = {}
    levels = list(_levels(value))
    for level in reversed(levels[1:]):
        # A part that is at several levels is written for each, and always the same.
        pieces |= {
            key: orjson.Fragment(dumps(_with_pieces(part, pieces, _STEP)))
            for key, part in level.items()
        }
    return _with_pieces(value, pieces, _STEP) if pieces else value


def _levels(value: Any) -> Iterator[dict[int, Any]]:
    """Yield the containers of each level that is written by itself, the outermost first."""
    level = {id(value): value} if _is_container(value) else {}
    for depth in range(_LEVELS_MAX):
        if not level:
            return
        if depth % _STEP == 0:
            yield level
        level = {id(each): each for part in level.values() for each in _containers_in(part)}
    raise TypeError(f"it is nested deeper than {_LEVELS_MAX} levels, or holds itself")


def fields_of(value: Any) -> dict[str, Any]:
    """Return what orjson writes of a dataclass: its attributes without a leading underscore."""
    if hasattr(value, "__dict__"):
        found = dict(vars(value))
    else:
        found = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return {name: each for name, each in found.items() if not name.startswith("_")}


def _is_container(value: Any) -> bool:
    return isinstance(value, _CONTAINERS) or _is_dataclass(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _containers_in(part: Any) -> Iterator[Any]:
    if _is_dataclass(part):
        part = fields_of(part)
    held = part.values() if isinstance(part, dict) else part
    return (each for each in held if _is_container(each))


def _with_pieces(value: Any, pieces: dict[int, orjson.Fragment], levels: int) -> Any:
    """Return a value whose containers below so many levels are pieces of JSON."""
    if not _is_container(value):
        return value
    if levels == 0:
        return pieces[id(value)]
    if _is_dataclass(value):
        value = fields_of(value)
    if isinstance(value, dict):
        return {key: _with_pieces(each, pieces, levels - 1) for key, each in value.items()}
    return [_with_pieces(each, pieces, levels - 1) for each in value]
