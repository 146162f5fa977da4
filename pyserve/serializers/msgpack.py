"""The codec ``msgpack``: compact, for clients in any language, with arrays.

Beyond msgpack's own types, by the codes of its extensions:

- 1, an array: the length of a head (2 bytes, big-endian), the head, the elements in C order. The
  head is the msgpack of ``[dtype, shape, padding]``, dtype as in numpy's ``dtype.str``.
- 2, an array elsewhere in the body: the msgpack of ``[dtype, shape, offset]``, see below.
- 3, an integer beyond 64 bits: two's complement, big-endian.
- 4, a ``datetime`` without a zone: its text in ISO 8601. With a zone it is msgpack's timestamp,
  and arrives in UTC.
- 5, a body with arrays of ``ARRAY_BYTES_MIN`` and more; only ever the outermost value. It has the
  length of a head (4 bytes, big-endian), the head, which is the msgpack of the value, and the
  elements of the arrays (see ``base.py``), which are not copied in either direction. Offsets
  count from the first multiple of 64 behind the head.

Tuples arrive as lists, arrays without axes as numpy's scalars, and ``numpy.float64``, which is a
Python float, as that.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgpack

from pyserve.serializers.base import (
    Buffer,
    Parts,
    ValueCodec,
    aligned,
    flat,
    garbled,
    lay_out,
    refusal,
)

if TYPE_CHECKING:
    import numpy

ARRAY_BYTES_MIN = 16 * 1024
"""From here on not copying an array is worth a body that only pyserve's extension explains."""

_ARRAY, _FAR_ARRAY, _INTEGER, _DATETIME, _SPREAD = range(1, 6)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)

# Extension type with a length of 4 bytes, and where its parts are.
_EXT32 = 0xC9
_EXT32_BYTES = 6
_EXT_BYTES_MAX = 2**32 - 1
_HEAD_START = _EXT32_BYTES + 4

# Booleans, numbers, dates and texts; objects and records belong to pickle.
_DTYPE = re.compile(r"[<>|=]?[biufcmMSU]\d{1,9}(\[\d{0,9}[A-Za-z]{1,7}\])?")

# Hashes of integers beyond 64 bits can be chosen, so that as keys of a dict they all collide and
# take quadratic time. Arbitrary; costs at most some tenths of a second.
_LARGE_INTEGERS_MAX = 4096
_INTEGER_BYTES_MAX = 64 * 1024  # arbitrary; texts and arrays are made for more


class MsgpackCodec(ValueCodec):
    """Carries msgpack's types, arrays, large integers and dates."""

    name = "msgpack"

    def encode(self, value: object) -> Parts:
        """Return the body of ``value``; see ``Codec``. Large arrays are not copied."""
        far = _FarArrays()
        try:
            head = msgpack.packb(value, default=far.extended)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise refusal(self.name, value, error) from error
        if not far.views:
            return [head]
        if far.end + len(head) + 2 * _HEAD_START >= _EXT_BYTES_MAX:
            raise refusal(self.name, value, "its arrays have more than 4 GiB; use pickle")
        length = aligned(_HEAD_START + len(head)) + far.end
        prefix = (
            bytes((_EXT32,))
            + (length - _EXT32_BYTES).to_bytes(4, "big")
            + bytes((_SPREAD,))
            + len(head).to_bytes(4, "big")
        )
        return lay_out(prefix + head, far.views)

    def decode(self, body: Buffer) -> object:
        """Return the value of a body; see ``Codec``. Large arrays are read-only views of it."""
        try:
            if body[:1] == b"\xc9":
                return _read_spread(flat(body))
            return _read(body, None)
        # msgpack, numpy and datetime each have their own kinds, all meaning the same.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise garbled(self.name, body, reason) from error


class _FarArrays:
    """The large arrays of one value, taken out while it is packed."""

    __slots__ = ("end", "views")

    def __init__(self) -> None:
        self.views: list[memoryview] = []
        self.end = 0  # of the last one, from the start of the first

    def extended(self, value: object) -> object:
        """Return what stands for a value that msgpack does not know."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            return self._array(value)
        if isinstance(value, int):
            size = value.bit_length() // 8 + 1
            if size > _INTEGER_BYTES_MAX:
                raise ValueError(f"an integer of {size} bytes, at most {_INTEGER_BYTES_MAX}")
            return msgpack.ExtType(_INTEGER, value.to_bytes(size, "big", signed=True))
        if isinstance(value, datetime):
            if value.tzinfo is None:
                return msgpack.ExtType(_DATETIME, value.isoformat().encode())
            seconds = (value - _EPOCH) // _SECOND
            return msgpack.Timestamp(seconds, value.microsecond * 1000)
        raise TypeError(f"it has a {type(value).__qualname__}; use pickle")

    def _array(self, value: Any) -> object:
        dtype = value.dtype.str
        if not _DTYPE.fullmatch(dtype) or value.dtype.names:
            raise TypeError(f"it has an array of {value.dtype}; use pickle")
        # Not `ascontiguousarray`, which adds an axis to arrays without axes.
        array = value if value.flags.c_contiguous else value.copy(order="C")
        if array.nbytes < ARRAY_BYTES_MIN:
            head = msgpack.packb((dtype, array.shape, b""))
            data = len(head).to_bytes(2, "big") + head + array.tobytes()
            return msgpack.ExtType(_ARRAY, data)
        offset = aligned(self.end)
        self.views.append(_bytes_of(array))
        self.end = offset + array.nbytes
        return msgpack.ExtType(_FAR_ARRAY, msgpack.packb((dtype, array.shape, offset)))


def _bytes_of(array: numpy.ndarray[Any, Any]) -> memoryview:
    # Dates and times refuse the buffer protocol, their bytes do not.
    elements: Any = array.reshape(-1).view("u1")
    return memoryview(elements)


def _read(body: Buffer, arrays: memoryview | None) -> object:
    """Return the value of one msgpack; ``arrays`` are the elements of the far ones, if any."""
    integers_left = _LARGE_INTEGERS_MAX

    def extension(code: int, data: bytes) -> object:
        nonlocal integers_left
        if code == _ARRAY:
            start = 2 + int.from_bytes(data[:2], "big")
            dtype, shape, _padding = msgpack.unpackb(data[2:start])
            return _array(dtype, shape, memoryview(data)[start:], exactly=True)
        if code == _FAR_ARRAY and arrays is not None:
            dtype, shape, offset = msgpack.unpackb(data)
            if not 0 <= offset <= arrays.nbytes:
                raise ValueError(f"an array begins at {offset} of {arrays.nbytes}")
            return _array(dtype, shape, arrays[offset:], exactly=False)
        if code == _INTEGER:
            integers_left -= 1
            if integers_left < 0 or len(data) > _INTEGER_BYTES_MAX:
                raise ValueError(
                    f"more than {_LARGE_INTEGERS_MAX} integers beyond 64 bits, or one of more "
                    f"than {_INTEGER_BYTES_MAX} bytes"
                )
            return int.from_bytes(data, "big", signed=True)
        if code == _DATETIME:
            return datetime.fromisoformat(data.decode())
        raise ValueError(f"extension type {code} is unknown here")

    return msgpack.unpackb(body, ext_hook=extension, strict_map_key=False, timestamp=3)


def _read_spread(body: memoryview) -> object:
    if body.nbytes < _HEAD_START or body[5] != _SPREAD:
        return _read(body, None)
    if int.from_bytes(body[1:5], "big") != body.nbytes - _EXT32_BYTES:
        raise ValueError("it is cut off")
    head_end = _HEAD_START + int.from_bytes(body[_EXT32_BYTES:_HEAD_START], "big")
    if head_end > body.nbytes:
        raise ValueError(f"its head ends at {head_end}")
    return _read(body[_HEAD_START:head_end], body[aligned(head_end) :])


def _array(dtype: object, shape: object, data: memoryview, *, exactly: bool) -> object:
    """Return an array over ``data``, which has the same length (``exactly``) or is longer."""
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError(f"an array has the dtype {dtype!r}")
    if not isinstance(shape, list) or not all(type(axis) is int and axis >= 0 for axis in shape):
        raise ValueError(f"an array has the shape {shape!r}")
    # The package works without numpy; a process that exchanges arrays has it.
    numpy = importlib.import_module("numpy")
    kind = numpy.dtype(dtype)
    size = kind.itemsize * math.prod(shape)
    if size > data.nbytes or (exactly and size != data.nbytes):
        raise ValueError(f"an array of {size} bytes has {data.nbytes}")
    array = numpy.ndarray(tuple(shape), dtype=kind, buffer=data[:size])
    return array if shape else array[()]
