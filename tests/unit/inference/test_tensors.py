"""Tensors: what goes in comes out, and what does not fit is refused with both sides named."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.errors import Abort, UsageError
from pyserve.inference import DATATYPES, Tensor
from pyserve.inference.tensors import as_array, from_raw, from_values, to_raw, to_values

_NUMBERS = [name for name in DATATYPES if name not in ("BYTES", "BF16")]
_SHAPES = st.lists(st.integers(0, 4), max_size=3)


def _array(datatype: str, shape: list[int], seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).integers(0, 100, size=shape)
    dtype = from_raw("x", datatype, [0], b"").dtype
    return np.asarray(numbers % 2 == 0 if datatype == "BOOL" else numbers, dtype)


@pytest.mark.parametrize("datatype", _NUMBERS)
@given(shape=_SHAPES, seed=st.integers(0, 1000))
def test_numbers_come_back_raw_and_as_json(datatype: str, shape: list[int], seed: int):
    array = _array(datatype, shape, seed)

    raw = from_raw("x", datatype, shape, to_raw(array, datatype))
    values = from_values("x", datatype, shape, json.loads(json.dumps(to_values(array, datatype))))

    assert array.dtype == raw.dtype == values.dtype
    assert np.array_equal(array, raw)
    assert np.array_equal(array, values)


@pytest.mark.parametrize(
    ("datatype", "largest", "beyond"),
    [
        ("FP16", 65504.0, 65520.0),
        ("BF16", 3.3895313892515355e38, 3.4e38),
        ("FP32", 3.4028234663852886e38, 3.5e38),
    ],
)
def test_numbers_beyond_a_datatype_are_refused(datatype: str, largest: float, beyond: float):
    taken = from_values("x", datatype, [3], [largest, -largest, None])
    assert np.isfinite(taken[:2]).all()
    assert math.isnan(taken[2])
    for value in (beyond, -beyond):
        with pytest.raises(Abort, match=f"is beyond the largest {datatype}"):
            from_values("x", datatype, [2], [0.0, value])


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_an_infinity_is_no_json(datatype: str):
    array = as_array(Tensor("y", datatype, (-1,)), np.array([1, np.nan, np.inf], dtype="f4"))

    with pytest.raises(Abort, match="ask for binary data"):
        to_values(array, datatype)
    assert math.isinf(from_raw("y", datatype, [3], to_raw(array, datatype))[2])


@given(elements=st.lists(st.binary(max_size=20), max_size=5))
def test_bytes_come_back_raw(elements: list[bytes]):
    array = from_values("x", "BYTES", [len(elements)], elements)

    assert elements == list(from_raw("x", "BYTES", [len(elements)], to_raw(array, "BYTES")))


def test_text_is_bytes_in_json():
    array = from_values("x", "BYTES", [2], ["a", "ä"])

    assert [b"a", "ä".encode()] == list(array)
    assert ["a", "ä"] == to_values(array, "BYTES")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0, 1.0), (1.00390625, 1.0), (1.01171875, 1.015625), (-3.140625, -3.140625)],
)
def test_bfloat_rounds_to_the_nearest_even(value: float, expected: float):
    raw = to_raw(np.array([value], dtype="f4"), "BF16")

    assert 2 == len(raw)
    assert expected == from_raw("x", "BF16", [1], raw)[0]


def test_bfloat_keeps_what_is_no_number():
    raw = to_raw(np.array([np.nan, np.inf, -np.inf], dtype="f4"), "BF16")
    back = from_raw("x", "BF16", [3], raw)

    assert math.isnan(back[0])
    assert [math.inf, -math.inf] == back[1:].tolist()


@pytest.mark.parametrize(
    ("datatype", "shape", "raw", "said"),
    [
        ("FP32", [2], b"\0" * 7, "has 7 bytes; FP32 of shape \\[2\\] takes 8"),
        ("BYTES", [1], b"\x05\0\0", "inside the length"),
        ("BYTES", [1], b"\x05\0\0\0abc", "inside an element of 5 bytes"),
        ("BYTES", [2], b"\x01\0\0\0a", "has 1 elements, its shape says 2"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(datatype: str, shape: list[int], raw: bytes, said: str):
    with pytest.raises(Abort, match=said):
        from_raw("x", datatype, shape, raw)


@pytest.mark.parametrize(
    ("datatype", "shape", "values", "said"),
    [
        ("INT8", [1], [1.5], "no INT8"),
        ("INT8", [1], [300], "no INT8|out of bounds"),
        ("UINT8", [1], [-1], "no UINT8|out of bounds"),
        ("FP32", [1], ["a"], "cannot be read as FP32"),
        ("FP32", [2], [1.0], "has 1 values"),
        ("FP32", [2, 2], [[1.0], [2.0, 3.0]], "cannot be read"),
        ("BYTES", [1], [3], "neither text nor bytes"),
    ],
)
def test_values_that_do_not_fit_are_refused(datatype: str, shape: list[int], values, said: str):
    with pytest.raises(Abort, match=said):
        from_values("x", datatype, shape, values)


def test_nested_values_are_read_row_by_row():
    assert [[1, 2], [3, 4]] == from_values("x", "INT32", [2, 2], [[1, 2], [3, 4]]).tolist()


@pytest.mark.parametrize(
    ("datatype", "shape", "said"),
    [
        ("FP64", (2, 3), "has datatype FP64, not FP32"),
        ("FP32", (2,), "shape \\[2\\], which does not fit \\[-1, 3\\]"),
        ("FP32", (2, 4), "does not fit"),
    ],
)
def test_an_input_that_is_not_as_declared_is_refused(datatype: str, shape, said: str):
    with pytest.raises(Abort, match=said):
        Tensor("x", "FP32", (-1, 3)).check(datatype, shape)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros((2, 2), dtype="i4"), "came with shape \\[2, 2\\]"),
        (np.array(["a", "b"]), "declared INT32 and came as"),
        (np.array([1.5, 2.5]), "declared INT32 and came as float64"),
        (np.array([2**40]), "a value that int32 cannot hold"),
    ],
)
def test_an_output_that_is_not_as_declared_is_told(value: np.ndarray, said: str):
    with pytest.raises(TypeError, match=said):
        as_array(Tensor("y", "INT32", (-1,)), value)


def test_a_float_loses_digits_and_no_more():
    output = Tensor("y", "FP32", (-1,))

    assert [np.float32(0.1), np.inf] == as_array(output, np.array([0.1, np.inf])).tolist()
    with pytest.raises(TypeError, match="a value that float32 cannot hold"):
        as_array(output, np.array([2e300]))


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "said"),
    [
        ("x y", "FP32", (1,), "a name is a Python identifier"),
        ("x", "FLOAT", (1,), "datatype 'FLOAT' is unknown"),
        ("x", "FP32", (-2,), "length below -1"),
    ],
)
def test_a_wrong_declaration_is_refused(name: str, datatype: str, shape, said: str):
    with pytest.raises(UsageError, match=said):
        Tensor(name, datatype, shape)
