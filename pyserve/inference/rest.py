"""Requests and answers of the protocol over HTTP: JSON, with raw tensors after it if wanted.

The extension for binary tensors: a header says how long the JSON is; the bytes of tensors with
``binary_data_size`` follow it, one after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from pyserve.inference.declaration import Model
from pyserve.inference.messages import (
    Inference,
    check_inputs,
    check_outputs,
    check_parameters,
    selected,
)
from pyserve.inference.tensors import (
    DATATYPES,
    Array,
    Tensor,
    from_raw,
    from_values,
    invalid,
    to_raw,
    to_values,
)
from pyserve.serializers.json import read_exactly

JSON_LENGTH = b"inference-header-content-length"
# Python refuses to read numbers of thousands of digits.
_LENGTH_DIGITS_MAX = 20
_JSON_TYPE = b"application/json"
_BINARY_TYPE = b"application/octet-stream"


class Wanted(NamedTuple):
    """A request, and which of its outputs the client wants in binary form."""

    inference: Inference
    is_binary: Mapping[str, bool]
    is_binary_otherwise: bool


class Answer(NamedTuple):
    """Headers and body of an answer."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


def read_request(model: Model, body: bytes, json_length: bytes | None) -> Wanted:
    """Return what a body asks for.

    Args:
        model: What is asked.
        body: All of it.
        json_length: The value of the header ``JSON_LENGTH``, if there is one.

    Raises:
        Abort: INVALID_ARGUMENT, saying what does not fit.
    """
    text, raw = _split(body, json_length)
    request = _Reader(_parsed(text), "the request")
    inputs = [_Reader(each, "an input") for each in request.list("inputs")]
    declared = check_inputs(model, [each.text("name") for each in inputs])
    arrays: dict[str, Array] = {}
    for each in inputs:
        array, raw = _array(declared[each.text("name")], each, raw)
        arrays[each.text("name")] = array
    if raw:
        raise invalid(f"{len(raw)} bytes follow the last binary tensor")
    outputs = [_Reader(each, "an output") for each in request.list("outputs", default=())]
    names = [each.text("name") for each in outputs]
    check_outputs(model, names)
    for part in (request, *inputs, *outputs):
        check_parameters(part.parameters())
    binary = {
        each.text("name"): bool(wish)
        for each in outputs
        if (wish := each.parameters().get("binary_data")) is not None
    }
    otherwise = bool(request.parameters().get("binary_data_output", False))
    inference = Inference(id=request.text("id", default=""), arrays=arrays, outputs=names)
    return Wanted(inference, binary, otherwise)


def write_response(model: Model, wanted: Wanted, arrays: Mapping[str, Array]) -> Answer:
    """Return the answer, with binary tensors where they were asked for.

    Raises:
        Abort: INTERNAL or INVALID_ARGUMENT: an output cannot be written as JSON.
    """
    outputs: list[dict[str, Any]] = []
    pieces: list[bytes] = []
    for tensor, array in selected(model, wanted.inference, arrays):
        output: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(array.shape),
        }
        if wanted.is_binary.get(tensor.name, wanted.is_binary_otherwise):
            pieces.append(to_raw(array, tensor.datatype))
            output["parameters"] = {"binary_data_size": len(pieces[-1])}
        else:
            output["data"] = to_values(array, tensor.datatype)
        outputs.append(output)
    document = {
        "model_name": model.name,
        "model_version": model.versions[0],
        **({"id": wanted.inference.id} if wanted.inference.id else {}),
        "outputs": outputs,
    }
    text = orjson.dumps(document)
    if not pieces:
        return Answer([(b"content-type", _JSON_TYPE)], text)
    headers = [(b"content-type", _BINARY_TYPE), (JSON_LENGTH, str(len(text)).encode())]
    return Answer(headers, b"".join((text, *pieces)))


def metadata(model: Model) -> dict[str, Any]:
    """Return what clients may know of the model."""

    def described(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
        return [
            {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
            for tensor in tensors
        ]

    return {
        "name": model.name,
        "versions": list(model.versions),
        "platform": model.platform,
        "inputs": described(model.inputs),
        "outputs": described(model.outputs),
    }


def _parsed(text: bytes) -> Any:
    """Read JSON; if orjson refuses it, read it again with a parser that reports errors better."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    try:
        return read_exactly(text)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the request is not JSON: {error}") from None


def _split(body: bytes, json_length: bytes | None) -> tuple[bytes, memoryview]:
    if json_length is None:
        return body, memoryview(b"")
    is_number = json_length.isdigit() and len(json_length) <= _LENGTH_DIGITS_MAX
    if not is_number or int(json_length) > len(body):
        text = json_length.decode(errors="replace")
        raise invalid(
            f"inference-header-content-length is {text!r}; the body has {len(body)} bytes"
        )
    length = int(json_length)
    return body[:length], memoryview(body)[length:]


def _array(tensor: Tensor, entry: _Reader, raw: memoryview) -> tuple[Array, memoryview]:
    datatype, shape = entry.text("datatype"), entry.shape()
    if datatype not in DATATYPES:
        raise invalid(f"input {tensor.name!r} has datatype {datatype!r}, which is unknown")
    tensor.check(datatype, shape)
    size = entry.parameters().get("binary_data_size")
    if size is None:
        values = entry.list("data")
        return from_values(tensor.name, datatype, shape, values), raw
    if not isinstance(size, int) or not 0 <= size <= len(raw):
        raise invalid(f"input {tensor.name!r}: {size!r} bytes of binary data are not there")
    return from_raw(tensor.name, datatype, shape, raw[:size]), raw[size:]


class _Reader:
    """Reads one JSON object, and says what is wrong with it."""

    def __init__(self, document: object, label: str) -> None:
        if not isinstance(document, dict):
            raise invalid(f"{label} is not a JSON object")
        self._document = document
        self._label = label

    def text(self, key: str, default: str | None = None) -> str:
        value = self._document.get(key, default)
        if not isinstance(value, str):
            raise invalid(f"{self._label}: {key!r} must be a string")
        return value

    def list(self, key: str, default: Sequence[Any] | None = None) -> Sequence[Any]:
        value = self._document.get(key, default)
        if not isinstance(value, list | tuple):
            raise invalid(f"{self._label}: {key!r} must be a list")
        return value

    def shape(self) -> Sequence[int]:
        shape = self.list("shape")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise invalid(f"{self._label}: 'shape' must be a list of lengths")
        return shape

    def parameters(self) -> Mapping[str, Any]:
        value = self._document.get("parameters", {})
        if not isinstance(value, dict):
            raise invalid(f"{self._label}: 'parameters' must be an object")
        return value
