"""Tensors of the Open Inference Protocol: their datatypes, and their bytes.

Raw tensors are row by row and little endian; elements of ``BYTES`` have their length before
them, four bytes. https://github.com/kserve/open-inference-protocol, "binary tensor data".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from grpc import StatusCode

from pyserve.errors import Abort, UsageError

Array = np.ndarray[Any, Any]

_DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
# numpy has no bfloat16: handlers get it as float32, whose upper half it is.
_BFLOAT = "BF16"
_BYTES = "BYTES"
DATATYPES = (*_DTYPES, _BFLOAT, _BYTES)
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A model's declaration of one of its inputs or outputs.

    Attributes:
        name: Also the name of ``infer``'s parameter, for inputs.
        datatype: ``FP32``, ``INT64``, ``BOOL``, ``BYTES``, ...: see ``DATATYPES``.
        shape: Lengths of the axes; -1 stands for any length.
        optional: Calls may leave this input out; then ``infer``'s own default applies.

    Raises:
        UsageError: The datatype is unknown, or a length is neither -1 nor at least 0.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise UsageError(f"tensor {self.name!r}: a name is a Python identifier")
        if self.datatype not in DATATYPES:
            allowed = ", ".join(DATATYPES)
            raise UsageError(
                f"tensor {self.name!r}: datatype {self.datatype!r} is unknown; it may be {allowed}"
            )
        object.__setattr__(self, "shape", tuple(self.shape))
        if any(length < -1 for length in self.shape):
            raise UsageError(f"tensor {self.name!r}: shape {self.shape} has a length below -1")

    def check(self, datatype: str, shape: Sequence[int]) -> None:
        """Refuse another datatype, or a shape that does not fit.

        Raises:
            Abort: INVALID_ARGUMENT, naming both sides.
        """
        if datatype != self.datatype:
            raise invalid(f"input {self.name!r} has datatype {datatype}, not {self.datatype}")
        fits = len(shape) == len(self.shape) and all(
            wanted in (-1, length) and length >= 0
            for wanted, length in zip(self.shape, shape, strict=True)
        )
        if not fits:
            raise invalid(
                f"input {self.name!r} has shape {list(shape)}, which does not fit "
                f"{list(self.shape)}"
            )


def invalid(text: str) -> Abort:
    """Return the error for a request that cannot be understood."""
    return Abort(StatusCode.INVALID_ARGUMENT, text)


def from_raw(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> Array:
    """Return the array of a raw tensor; a view of ``raw`` where the types allow it.

    Raises:
        Abort: INVALID_ARGUMENT: the bytes are not as many as the shape says.
    """
    count = math.prod(shape)
    if datatype == _BYTES:
        return _from_elements(shape, _elements(name, raw, count))
    is_bfloat = datatype == _BFLOAT
    dtype = np.dtype("<u2") if is_bfloat else _DTYPES[datatype]
    if len(raw) != count * dtype.itemsize:
        raise invalid(
            f"tensor {name!r} has {len(raw)} bytes; {datatype} of shape {list(shape)} takes "
            f"{count * dtype.itemsize}"
        )
    array = np.frombuffer(raw, dtype).reshape(tuple(shape))
    return _widen(array) if is_bfloat else array


def from_values(name: str, datatype: str, shape: Sequence[int], values: Sequence[Any]) -> Array:
    """Return the array of values that stand row by row, flat or nested.

    Raises:
        Abort: INVALID_ARGUMENT: they do not fit the type or the shape.
    """
    if datatype == _BYTES:
        flat = _flat(values)
        if len(flat) != math.prod(shape):
            raise _wrong_count(name, len(flat), shape)
        return _from_elements(shape, [_as_bytes(name, value) for value in flat])
    dtype = np.dtype("<f4") if datatype == _BFLOAT else _DTYPES[datatype]
    try:
        array = np.asarray(values)
        # JSON has one kind of number: 1 is good for FP32, and 1.5 is not for INT8.
        if dtype.kind in "iub" and array.dtype.kind != "b" and array.size:
            made = array.astype(dtype)
            if not np.array_equal(made, array):
                raise ValueError(f"a value is no {datatype}")
            array = made
        array = _of_floats(array, datatype) if dtype.kind == "f" else array.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"tensor {name!r}: its data cannot be read as {datatype}: {error}") from None
    if array.size != math.prod(shape):
        raise _wrong_count(name, array.size, shape)
    return array.reshape(tuple(shape))


def _of_floats(array: Array, datatype: str) -> Array:
    """Return ``array`` as numbers of a float's datatype; digits may go, values may not.

    Raises:
        ValueError: A number is beyond the largest one.
    """
    wide = array.astype("<f8")
    with np.errstate(over="ignore"):
        made = wide.astype("<f4" if datatype == _BFLOAT else _DTYPES[datatype])
    held = _widen(_narrow(made)) if datatype == _BFLOAT else made
    lost = np.isinf(held) & ~np.isinf(wide)
    if lost.any():
        raise ValueError(f"{wide[lost][0]} is beyond the largest {datatype}")
    return made


def to_raw(array: Array, datatype: str) -> bytes:
    """Return the bytes of an array that ``as_array`` made."""
    if datatype == _BYTES:
        elements = (_as_bytes("", value) for value in array.ravel())
        return b"".join(_LENGTH.pack(len(each)) + each for each in elements)
    if datatype == _BFLOAT:
        return _narrow(array).tobytes()
    return array.tobytes()


def to_values(array: Array, datatype: str) -> list[Any]:
    """Return the values row by row, as JSON has them.

    Raises:
        Abort: INTERNAL: an element of BYTES is no UTF-8, which JSON cannot carry; INVALID_ARGUMENT:
            a number is infinite, which neither it can.
    """
    if array.dtype.kind == "f" and np.isinf(array).any():
        # NaN becomes null, and null NaN; an infinity would be taken for one.
        raise invalid(
            "an output has an infinity, which JSON has no number for: ask for binary data"
        )
    if datatype != _BYTES:
        values: list[Any] = array.ravel().tolist()
        return values
    try:
        return [_as_bytes("", value).decode() for value in array.ravel()]
    except UnicodeDecodeError:
        raise Abort(
            StatusCode.INTERNAL, "an output has bytes that are no UTF-8: ask for binary data"
        ) from None


def as_array(tensor: Tensor, value: object) -> Array:
    """Return what a handler gave for an output, in the output's datatype, contiguous.

    Raises:
        TypeError: It cannot be had without a loss, or its shape is another one.
    """
    if tensor.datatype == _BYTES:
        array = np.asarray(value, dtype=object)
    else:
        array = np.asarray(value)
        dtype = np.dtype("<f4") if tensor.datatype == _BFLOAT else _DTYPES[tensor.datatype]
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise TypeError(
                f"output {tensor.name!r} is declared {tensor.datatype} and came as {array.dtype}"
            )
        array = _narrowed(tensor.name, array, dtype)
    fits = array.ndim == len(tensor.shape) and all(
        wanted in (-1, length) for wanted, length in zip(tensor.shape, array.shape, strict=True)
    )
    if not fits:
        raise TypeError(
            f"output {tensor.name!r} is declared {list(tensor.shape)} and came with shape "
            f"{list(array.shape)}"
        )
    return array


def _narrowed(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """Return ``array`` as ``dtype``; digits of floats may go, values may not."""
    with np.errstate(over="ignore"):
        made = np.asarray(array, dtype, order="C")
    is_kept = (
        np.array_equal(np.isinf(made), np.isinf(array))
        if dtype.kind == "f"
        else np.array_equal(made, array)
    )
    if not is_kept:
        raise TypeError(f"output {name!r} has a value that {dtype.name} cannot hold")
    return made


def _elements(name: str, raw: bytes | memoryview, count: int) -> list[bytes]:
    elements: list[bytes] = []
    offset, view = 0, memoryview(raw)
    while offset < len(view):
        if offset + _LENGTH.size > len(view):
            raise invalid(f"tensor {name!r} ends inside the length of an element")
        (length,) = _LENGTH.unpack_from(view, offset)
        offset += _LENGTH.size
        if offset + length > len(view):
            raise invalid(f"tensor {name!r} ends inside an element of {length} bytes")
        elements.append(bytes(view[offset : offset + length]))
        offset += length
    if len(elements) != count:
        raise invalid(f"tensor {name!r} has {len(elements)} elements, its shape says {count}")
    return elements


def _from_elements(shape: Sequence[int], elements: Sequence[bytes]) -> Array:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array.reshape(tuple(shape))


def _as_bytes(name: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise invalid(f"tensor {name!r} is BYTES, and {value!r} is neither text nor bytes")


def _flat(values: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    rest = [iter(values)]
    while rest:
        for value in rest[-1]:
            if isinstance(value, list):
                rest.append(iter(value))
                break
            flat.append(value)
        else:
            rest.pop()
    return flat


def _wrong_count(name: str, count: int, shape: Sequence[int]) -> Abort:
    return invalid(f"tensor {name!r} has {count} values; shape {list(shape)} takes others")


def _widen(array: Array) -> Array:
    return (array.astype("<u4") << 16).view("<f4")


def _narrow(array: Array) -> Array:
    """Round to the nearest bfloat16, to even where two are as near."""
    bits = array.astype("<f4").view("<u4")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    # Rounding could make an infinity of a NaN.
    return (
        np.where(np.isnan(array), bits | 0x400000, rounded)
        .astype("<u4")
        .__rshift__(16)
        .astype("<u2")
    )
