"""Requests of both doors: read, refused with a reason, and answered."""

import asyncio
import gzip
import json
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pool
from grpc import StatusCode

import pyserve
from pyserve import inference
from pyserve.errors import Abort, UsageError
from pyserve.inference import messages, rest
from pyserve.inference import open_inference_pb2 as pb
from pyserve.inference.declaration import Model
from pyserve.inference.descriptors import SERVICE, file_descriptor

X = inference.Tensor("x", "FP32", (-1, 2))
NAMES = inference.Tensor("names", "BYTES", (-1,), optional=True)
SUMS = inference.Tensor("sums", "FP32", (-1,))
COUNT = inference.Tensor("count", "INT64", ())
MODEL = Model(name="adder", versions=("1", "2"), inputs=(X, NAMES), outputs=(SUMS, COUNT))
ARRAYS = {"sums": np.array([3, 7], dtype="f4"), "count": np.array(2, dtype="i8")}


def _message(**changes: Any) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor
    fields: dict[str, Any] = {
        "model_name": "adder",
        "id": "7",
        "inputs": [tensor(name="x", datatype="FP32", shape=[2, 2])],
        "raw_input_contents": [np.arange(4, dtype="f4").tobytes()],
    }
    return pb.ModelInferRequest(**{**fields, **changes})


def _document(**changes: object) -> bytes:
    x = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[0, 1], [2, 3]]}
    return json.dumps({"id": "7", "inputs": [x], **changes}).encode()


def test_a_message_with_raw_tensors_is_read():
    read = messages.read_request(MODEL, _message())

    assert [[0, 1], [2, 3]] == read.arrays["x"].tolist()
    assert "7" == read.id


def test_a_message_with_contents_is_read():
    tensor = pb.ModelInferRequest.InferInputTensor(
        name="x",
        datatype="FP32",
        shape=[1, 2],
        contents=pb.InferTensorContents(fp32_contents=[1, 2]),
    )
    read = messages.read_request(MODEL, _message(inputs=[tensor], raw_input_contents=[]))

    assert [[1, 2]] == read.arrays["x"].tolist()


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"model_name": "other"}, StatusCode.NOT_FOUND, "'adder' is"),
        ({"model_version": "3"}, StatusCode.NOT_FOUND, "it has 1, 2"),
        ({"inputs": []}, StatusCode.INVALID_ARGUMENT, "'x' of model 'adder' is missing"),
        ({"raw_input_contents": [b"", b""]}, StatusCode.INVALID_ARGUMENT, "2 entries for 1 input"),
        (
            {"outputs": [pb.ModelInferRequest.InferRequestedOutputTensor(name="z")]},
            StatusCode.INVALID_ARGUMENT,
            "no output 'z'; it has sums, count",
        ),
    ],
)
def test_a_message_that_does_not_fit_is_refused(changes, code: StatusCode, said: str):
    with pytest.raises(Abort, match=said) as raised:
        messages.read_request(MODEL, _message(**changes))

    assert code is raised.value.code


def test_an_answer_has_what_was_asked_for():
    asked = pb.ModelInferRequest.InferRequestedOutputTensor(name="count")
    read = messages.read_request(MODEL, _message(outputs=[asked]))
    answer = messages.write_response(MODEL, read, ARRAYS)

    assert ["count"] == [each.name for each in answer.outputs]
    assert [(2).to_bytes(8, "little")] == list(answer.raw_output_contents)
    assert ("adder", "1", "7") == (answer.model_name, answer.model_version, answer.id)


def test_json_is_read_and_written():
    wanted = rest.read_request(MODEL, _document(), None)
    answer = rest.write_response(MODEL, wanted, ARRAYS)

    assert [[0, 1], [2, 3]] == wanted.inference.arrays["x"].tolist()
    assert [(b"content-type", b"application/json")] == answer.headers
    assert {
        "model_name": "adder",
        "model_version": "1",
        "id": "7",
        "outputs": [
            {"name": "sums", "datatype": "FP32", "shape": [2], "data": [3.0, 7.0]},
            {"name": "count", "datatype": "INT64", "shape": [], "data": [2]},
        ],
    } == json.loads(answer.body)


def test_binary_tensors_follow_the_json_both_ways():
    x = {
        "name": "x",
        "datatype": "FP32",
        "shape": [2, 2],
        "parameters": {"binary_data_size": 16},
    }
    names = {
        "name": "names",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"binary_data_size": 5},
    }
    text = _document(inputs=[x, names], parameters={"binary_data_output": True})
    raw = np.arange(4, dtype="f4").tobytes() + b"\1\0\0\0a"
    wanted = rest.read_request(MODEL, text + raw, str(len(text)).encode())
    answer = rest.write_response(MODEL, wanted, ARRAYS)

    assert [[0, 1], [2, 3]] == wanted.inference.arrays["x"].tolist()
    assert [b"a"] == wanted.inference.arrays["names"].tolist()
    length = int(dict(answer.headers)[rest.JSON_LENGTH])
    assert ARRAYS["sums"].tobytes() + ARRAYS["count"].tobytes() == answer.body[length:]
    assert [8, 8] == [
        each["parameters"]["binary_data_size"]
        for each in json.loads(answer.body[:length])["outputs"]
    ]


@pytest.mark.parametrize(
    ("body", "length", "said"),
    [
        (b"{", None, "not JSON"),
        (b"[]", None, "not a JSON object"),
        (_document().replace(b"3]", b"1e999]"), None, "the number 1e999 is beyond 1.8e308"),
        (_document().replace(b"3]", b"1e39]"), None, r"1e\+39 is beyond the largest FP32"),
        (gzip.compress(_document(), mtime=0), None, "it is compressed by gzip"),
        (_document(id="\ud800"), None, "half of a letter"),
        (_document(inputs="x"), None, "'inputs' must be a list"),
        (_document(inputs=[1]), None, "an input is not a JSON object"),
        (_document(inputs=[{"name": "x"}]), None, "'datatype' must be a string"),
        (_document(inputs=[{"name": "y"}]), None, "no input 'y'"),
        (_document(parameters=[]), None, "'parameters' must be an object"),
        (_document() + b"more", str(len(_document())).encode(), "4 bytes follow"),
        (_document(), b"9999", "the body has"),
        (_document(), b"-1", "the body has"),
        (_document(), b"9" * 5000, "the body has"),
        (
            _document(inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 2], "data": []}]),
            None,
            "'shape' must be a list of lengths",
        ),
        (
            _document(
                inputs=[
                    {
                        "name": "x",
                        "datatype": "FP32",
                        "shape": [1, 2],
                        "parameters": {"binary_data_size": 8},
                    }
                ]
            ),
            None,
            "8 bytes of binary data are not there",
        ),
    ],
)
def test_json_that_does_not_fit_is_refused(body: bytes, length: bytes | None, said: str):
    with pytest.raises(Abort, match=said) as raised:
        rest.read_request(MODEL, body, length)

    assert StatusCode.INVALID_ARGUMENT is raised.value.code


def test_results_may_be_a_dict_a_tuple_or_the_only_output():
    only = Model(name="m", versions=("1",), inputs=(X,), outputs=(SUMS,))

    assert {"sums", "count"} == MODEL.pack(([1.0, 2.0], 2)).keys()
    assert {"sums"} == MODEL.pack({"sums": [1.0]}).keys()
    assert [1.0, 2.0] == only.pack([1.0, 2.0])["sums"].tolist()


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"other": 1}, "which is not declared"),
        ((1,), "returned 1 outputs, 2 are declared"),
        (3, "return a dict of sums, count"),
        ({"sums": [[1.0]]}, "came with shape"),
    ],
)
def test_a_result_that_is_not_as_declared_is_told(result: object, said: str):
    with pytest.raises(TypeError, match=said):
        MODEL.pack(result)


def test_a_declaration_has_to_fit_the_method():
    with pytest.raises(UsageError, match="it has no method infer"):
        inference.model(inputs=[X], outputs=[SUMS])(type("Nothing", (), {}))
    with pytest.raises(UsageError, match="does not take the inputs x"):

        @inference.model(inputs=[X], outputs=[SUMS])
        class Other:
            def infer(self, y): ...


def test_the_decorated_class_stays_what_it_was():
    @inference.model(inputs=[X], outputs=[SUMS], name="sum")
    class Adder:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
        async def infer(self, x: list[np.ndarray]) -> list[np.ndarray]:
            return [each.sum(axis=1) for each in x]

    declared = inference.model_of(Adder)
    assert declared is not None
    assert "/v2/models/sum" == declared.prefix
    assert [3.0] == asyncio.run(Adder().infer(np.array([[1.0, 2.0]]))).tolist()
    assert inference.model_of(object) is None


def test_clients_see_the_package_of_the_specification():
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file_descriptor())
    methods = {method.name: method for method in pool.FindServiceByName(SERVICE).methods}

    assert "inference.ModelInferRequest" == methods["ModelInfer"].input_type.full_name
    assert methods["ModelStreamInfer"].client_streaming


def test_parameters_that_would_be_neglected_are_refused():
    parameter = {"sequence_id": pb.InferParameter(int64_param=5)}
    of_grpc = _message(parameters=parameter)
    wanted = pb.ModelInferRequest.InferRequestedOutputTensor(
        name="sums", parameters={"classification": pb.InferParameter(int64_param=2)}
    )
    of_rest = _document(outputs=[{"name": "sums", "parameters": {"classification": 2}}])

    with pytest.raises(Abort, match="'sequence_id': a sequence is not served here"):
        messages.read_request(MODEL, of_grpc)
    with pytest.raises(Abort, match="'classification': classification is not"):
        messages.read_request(MODEL, _message(outputs=[wanted]))
    with pytest.raises(Abort, match="'classification': classification is not"):
        rest.read_request(MODEL, of_rest, None)
    with pytest.raises(Abort, match="'sequence_start': a sequence is not"):
        rest.read_request(MODEL, _document(parameters={"sequence_start": True}), None)
