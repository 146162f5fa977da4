"""Values that codecs carry or refuse, for several tests."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy
from hypothesis import strategies as st

from pyserve.serializers import codec, join

NAMES = ("cloudpickle", "json", "msgpack", "pickle", "proto", "raw")


@dataclasses.dataclass
class Reading:
    sensor: str
    value: float


class Point(NamedTuple):
    x: int
    y: int


def round_trip(name: str, value: object) -> Any:
    """Return what arrives when ``value`` is sent."""
    found = codec(name)
    return found.decode(join(found.encode(value)))


def call_round_trip(name: str, *args: object, **kwargs: object) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that arrive."""
    found = codec(name)
    return found.decode_call(join(found.encode_call(args, kwargs)))


def same_array(expected: numpy.ndarray, actual: numpy.ndarray) -> bool:
    """Whether type, shape and every element are equal.

    In any byte order: numpy itself pickles some swapped arrays in the machine's own.
    """
    return (
        expected.dtype.newbyteorder("=") == actual.dtype.newbyteorder("=")
        and expected.shape == actual.shape
        and bool((expected == actual).all())
    )


DTYPES = ("?", "<i1", "<u2", ">i4", "<i8", "<f2", "<f4", ">f8", "<c16", "<M8[ns]", "<m8[s]", "<U3")


@st.composite
def arrays(draw: st.DrawFn) -> numpy.ndarray:
    """Arrays of any layout, from none to some ten thousand elements."""
    shape = draw(st.lists(st.integers(0, 30), max_size=3).map(tuple))
    kind = numpy.dtype(draw(st.sampled_from(DTYPES)))
    size = int(numpy.prod(shape, dtype=int))
    values = numpy.random.default_rng(draw(st.integers(0, 9))).integers(0, 100, size)
    array = values.astype(kind).reshape(shape)
    return draw(st.sampled_from([array, array.T, numpy.flip(array), numpy.asfortranarray(array)]))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def trees(leaves: st.SearchStrategy[object], keys: st.SearchStrategy[Any] = _TEXTS):
    """Lists and dicts of ``leaves``."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


_PLAIN = st.none() | st.booleans() | _FLOATS | _TEXTS
_BYTES = st.binary(max_size=200)

# What each codec promises to bring back unchanged.
CARRIED: dict[str, st.SearchStrategy[Any]] = {
    "json": trees(_PLAIN | st.integers(-(2**63), 2**64 - 1)),
    "msgpack": trees(
        _PLAIN | _BYTES | st.integers(-(2**90), 2**90) | st.datetimes(),
        _TEXTS | st.integers(-(2**63), 2**64 - 1),
    ),
    "pickle": trees(
        _PLAIN | _BYTES | st.integers() | st.datetimes() | st.builds(Reading, _TEXTS, _FLOATS)
        | st.tuples(st.integers(), _TEXTS) | st.frozensets(st.integers(), max_size=3),
        _TEXTS | st.integers(),
    ),
    "proto": _PLAIN | _BYTES | st.integers(-(2**63), 2**64 - 1),
    "raw": _BYTES,
}  # fmt: skip
CARRIED["cloudpickle"] = CARRIED["pickle"]
