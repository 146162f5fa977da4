"""Python values as JSON, and the headers that go with what handlers return."""

from __future__ import annotations

import collections
import datetime
import decimal
import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from pyserve.serializers.json import (
    dumps_long_numbers,
    in_parts,
    is_refusal_of_depth,
    is_refusal_of_long_number,
)

if TYPE_CHECKING:
    from pyserve.aio import HttpHeaders

JSON: HttpHeaders = ((b"content-type", b"application/json"),)
JSON_LINES: HttpHeaders = ((b"content-type", b"application/x-ndjson"),)
TEXT: HttpHeaders = ((b"content-type", b"text/plain; charset=utf-8"),)
BYTES: HttpHeaders = ((b"content-type", b"application/octet-stream"),)

_COLLECTIONS = (set, frozenset, tuple, collections.deque)


def to_json(value: Any) -> bytes:
    """Return the JSON text of what a handler returned.

    Besides JSON's own: dataclasses, pydantic models, numpy's arrays and numbers, dates, UUIDs,
    enumerations, sets, decimals, paths, whole numbers of any length, and keys that are no texts.
    NaN becomes null.

    Raises:
        TypeError: There is something else in it; the text names its type.
    """
    # With the option orjson imports numpy at the first value that it does not know, which takes
    # a while; before somebody else has imported it no value can be numpy's.
    options = orjson.OPT_SERIALIZE_NUMPY if "numpy" in sys.modules else 0
    try:  # contextlib.suppress takes longer than all the rest.
        return orjson.dumps(value, _simplified, options)
    except TypeError:
        pass
    try:
        return orjson.dumps(value, _simplified, options | orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        refusal = error
    try:
        is_of_number = is_refusal_of_long_number(refusal)
        if is_of_number or is_refusal_of_depth(refusal):
            parted = in_parts(value, to_json)
            if parted is not value:
                return to_json(parted)
        if is_of_number:
            return dumps_long_numbers(value, _simplified, options | orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        refusal = error
    # orjson wraps our function's exception in a less informative text.
    cause = refusal.__cause__
    raise TypeError(f"the result is not JSON: {cause or refusal}") from cause


def _simplified(value: Any) -> Any:
    """Return the replacement for a value that orjson does not know."""
    if hasattr(value, "model_dump"):  # pydantic's models
        return value.model_dump(mode="json")
    # Arrays that orjson leaves to us are not contiguous.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return value.tolist()
    if isinstance(value, _COLLECTIONS):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode()
    raise TypeError(
        f"{type(value).__module__}.{type(value).__qualname__} is none; return a dict, a "
        f"dataclass, text, bytes or a Starlette response"
    )
