"""The codec ``json``, also called ``orjson`` after the library that does the work.

Python's values change as JSON requires: tuples become lists, dataclasses and numpy arrays become
objects and lists, dates become texts, NaN and infinity become null. Keys must be texts: a key ``1``
is refused, since it would come back as ``"1"``. Integers beyond 64 bits are refused too, since many
readers round them. Such integers from other writers keep their digits when they are read, and
numbers beyond a float are refused.
"""

from __future__ import annotations

import sys

import orjson

from pyserve.serializers.base import Buffer, Parts, ValueCodec, garbled, refusal
from pyserve.serializers.exact_json import may_have_long_number, read_exactly


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
