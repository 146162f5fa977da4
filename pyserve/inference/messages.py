"""Requests and answers of the protocol, from and to its messages of gRPC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpc import StatusCode

from pyserve.errors import Abort
from pyserve.inference import open_inference_pb2 as pb
from pyserve.inference.declaration import Model
from pyserve.inference.tensors import (
    Array,
    Tensor,
    from_raw,
    from_values,
    invalid,
    to_raw,
)

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


# Parameters of Triton's extensions that would change the answer, and what they ask for.
_UNSERVED = {
    "sequence_id": "a sequence",
    "sequence_start": "a sequence",
    "sequence_end": "a sequence",
    "classification": "classification",
    "shared_memory_region": "shared memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """One request, whatever door it came through.

    Attributes:
        id: The client's own, returned with the answer.
        arrays: By name of the input.
        outputs: Those that were asked for; empty: all.
    """

    id: str = ""
    arrays: Mapping[str, Array]
    outputs: Sequence[str] = field(default=())


def check_version(model: Model, name: str, version: str) -> None:
    """Refuse a model or version that is not served here.

    Raises:
        Abort: NOT_FOUND.
    """
    if name != model.name:
        raise Abort(StatusCode.NOT_FOUND, f"model {name!r} is not served; {model.name!r} is")
    if version and version not in model.versions:
        raise Abort(
            StatusCode.NOT_FOUND,
            f"model {name!r} has no version {version!r}; it has {', '.join(model.versions)}",
        )


def check_inputs(model: Model, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the declared inputs by name, if ``names`` are them.

    Raises:
        Abort: INVALID_ARGUMENT: one is missing, unknown or twice there.
    """
    declared = {tensor.name: tensor for tensor in model.inputs}
    if len(set(names)) != len(names):
        raise invalid(f"an input is named twice: {', '.join(names)}")
    if unknown := [name for name in names if name not in declared]:
        raise invalid(f"model {model.name!r} has no input {unknown[0]!r}; {_listed(declared)}")
    required = [tensor.name for tensor in model.inputs if not tensor.optional]
    if missing := [name for name in required if name not in names]:
        raise invalid(f"input {missing[0]!r} of model {model.name!r} is missing")
    return declared


def check_outputs(model: Model, names: Sequence[str]) -> None:
    """Refuse outputs that the model has not.

    Raises:
        Abort: INVALID_ARGUMENT.
    """
    declared = {tensor.name: tensor for tensor in model.outputs}
    if unknown := [name for name in names if name not in declared]:
        raise invalid(f"model {model.name!r} has no output {unknown[0]!r}; {_listed(declared)}")


def check_parameters(names: Iterable[str]) -> None:
    """Refuse parameters whose neglect would give another answer than the client asked for.

    Raises:
        Abort: INVALID_ARGUMENT.
    """
    for name in names:
        if name in _UNSERVED:
            raise invalid(f"parameter {name!r}: {_UNSERVED[name]} is not served here; leave it out")


def read_request(model: Model, request: pb.ModelInferRequest) -> Inference:
    """Return what a message asks for.

    Raises:
        Abort: NOT_FOUND or INVALID_ARGUMENT, saying what does not fit.
    """
    check_version(model, request.model_name, request.model_version)
    declared = check_inputs(model, [each.name for each in request.inputs])
    outputs = [each.name for each in request.outputs]
    check_outputs(model, outputs)
    check_parameters(request.parameters)
    for tensor in request.inputs:
        check_parameters(tensor.parameters)
    for output in request.outputs:
        check_parameters(output.parameters)
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid(
            f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs; give "
            f"all inputs raw, or none"
        )
    arrays: dict[str, Array] = {}
    for index, each in enumerate(request.inputs):
        declared[each.name].check(each.datatype, each.shape)
        if raw:
            arrays[each.name] = from_raw(each.name, each.datatype, each.shape, raw[index])
        else:
            values = _contents(each)
            arrays[each.name] = from_values(each.name, each.datatype, each.shape, values)
    return Inference(id=request.id, arrays=arrays, outputs=outputs)


def write_response(
    model: Model, inference: Inference, arrays: Mapping[str, Array]
) -> pb.ModelInferResponse:
    """Return the answer; its tensors are raw."""
    response = pb.ModelInferResponse(
        model_name=model.name, model_version=model.versions[0], id=inference.id
    )
    for tensor, array in selected(model, inference, arrays):
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=array.shape)
        response.raw_output_contents.append(to_raw(array, tensor.datatype))
    return response


def selected(
    model: Model, inference: Inference, arrays: Mapping[str, Array]
) -> list[tuple[Tensor, Array]]:
    """Return the outputs that were asked for and are there, in the declared order."""
    return [
        (tensor, arrays[tensor.name])
        for tensor in model.outputs
        if tensor.name in arrays and (not inference.outputs or tensor.name in inference.outputs)
    ]


def metadata(model: Model) -> pb.ModelMetadataResponse:
    """Return what clients may know of the model."""

    def described(tensors: Sequence[Tensor]) -> list[pb.ModelMetadataResponse.TensorMetadata]:
        return [
            pb.ModelMetadataResponse.TensorMetadata(
                name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
            )
            for tensor in tensors
        ]

    return pb.ModelMetadataResponse(
        name=model.name,
        versions=model.versions,
        platform=model.platform,
        inputs=described(model.inputs),
        outputs=described(model.outputs),
    )


def _contents(tensor: pb.ModelInferRequest.InferInputTensor) -> Sequence[Any]:
    field_name = _CONTENTS.get(tensor.datatype)
    if field_name is None:
        raise invalid(f"input {tensor.name!r}: {tensor.datatype} can only be sent raw")
    values: Sequence[Any] = getattr(tensor.contents, field_name)
    return list(values) if field_name == "bytes_contents" else values


def _listed(declared: Mapping[str, Tensor]) -> str:
    return f"it has {', '.join(declared)}"
