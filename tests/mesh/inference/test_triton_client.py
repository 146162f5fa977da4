"""tritonclient, over gRPC and HTTP, against a mesh with several models."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.support.mesh import RunningMesh, running_mesh

_TIMEOUT_S = 30
A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = np.full((2, 4), 3, dtype=np.float32)


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    with running_mesh("tests.mesh.inference.apps:app") as running:
        yield running


@pytest.fixture(params=["grpc", "http"])
def client(request: pytest.FixtureRequest, mesh: RunningMesh):
    module = {"grpc": triton_grpc, "http": triton_http}[request.param]
    with module.InferenceServerClient(mesh.address) as made:
        made.library = module
        yield made


def tensor(library, name: str, datatype: str, array: np.ndarray, **arguments: object):
    made = library.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, **arguments)
    return made


def test_the_server_and_its_models_are_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("adder")
    assert client.is_model_ready("upper", "1")
    assert not client.is_model_ready("adder", "9")
    assert not client.is_model_ready("nobody")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v2/models/adder/infer", "POST"),
        ("PUT", "/v2/models/adder/versions/1/infer", "POST"),
        ("POST", "/v2/models/adder/ready", "GET, HEAD"),
        ("DELETE", "/v2/models/adder", "GET, HEAD"),
        ("POST", "/v2/health/ready", "GET, HEAD"),
        ("POST", "/v2", "GET, HEAD"),
    ],
)
def test_another_http_method_is_told_the_right_one(
    method: str, path: str, allowed: str, mesh: RunningMesh
):
    answer = httpx.request(method, f"http://{mesh.address}{path}", timeout=_TIMEOUT_S)

    assert (405, allowed) == (answer.status_code, answer.headers["allow"])
    assert {"error": f"{path} takes {allowed}"} == answer.json()


def test_a_head_is_as_good_as_a_get(mesh: RunningMesh):
    answer = httpx.head(f"http://{mesh.address}/v2/models/adder/ready", timeout=_TIMEOUT_S)
    assert (200, b"") == (answer.status_code, answer.content)


def test_metadata_names_the_tensors(mesh: RunningMesh):
    with triton_grpc.InferenceServerClient(mesh.address) as client:
        by_grpc = client.get_model_metadata("adder", as_json=True)
    with triton_http.InferenceServerClient(mesh.address) as client:
        by_http = client.get_model_metadata("adder")
        server = client.get_server_metadata()

    assert ["1", "2"] == by_http["versions"] == by_grpc["versions"]
    assert {"name": "a", "datatype": "FP32", "shape": [-1, 4]} == by_http["inputs"][0]
    assert {"name": "a", "datatype": "FP32", "shape": ["-1", "4"]} == by_grpc["inputs"][0]
    assert "binary_tensor_data" in server["extensions"]


def test_arrays_go_in_and_come_out(client):
    inputs = [tensor(client.library, "a", "FP32", A), tensor(client.library, "b", "FP32", B)]
    result = client.infer("adder", inputs, request_id="7")

    assert np.array_equal(A + B, result.as_numpy("sum"))
    assert np.array_equal(A - B, result.as_numpy("difference"))


def test_only_the_outputs_that_are_asked_for_come_back(client):
    inputs = [tensor(client.library, "a", "FP32", A), tensor(client.library, "b", "FP32", B)]
    outputs = [client.library.InferRequestedOutput("difference")]
    result = client.infer("adder", inputs, outputs=outputs, model_version="2")

    assert np.array_equal(A - B, result.as_numpy("difference"))
    assert result.as_numpy("sum") is None


def test_json_tensors_are_as_good(mesh: RunningMesh):
    with triton_http.InferenceServerClient(mesh.address) as client:
        inputs = [
            tensor(triton_http, "a", "FP32", A, binary_data=False),
            tensor(triton_http, "b", "FP32", B, binary_data=False),
        ]
        outputs = [triton_http.InferRequestedOutput("sum", binary_data=False)]
        result = client.infer("adder", inputs, outputs=outputs)

    assert np.array_equal(A + B, result.as_numpy("sum"))


def test_bytes_and_inputs_that_may_be_left_out(client):
    text = np.array([b"a", "ä".encode()], dtype=object)
    suffix = np.array([b"!"], dtype=object)
    without = client.infer("upper", [tensor(client.library, "text", "BYTES", text)])
    both = [
        tensor(client.library, "text", "BYTES", text),
        tensor(client.library, "suffix", "BYTES", suffix),
    ]

    assert [b"A", "ä".encode()] == without.as_numpy("upper").tolist()
    assert [b"A!", "ä!".encode()] == client.infer("upper", both).as_numpy("upper").tolist()


@pytest.mark.parametrize(
    ("model", "name", "array", "said"),
    [
        ("nobody", "a", A, "nobody"),
        ("adder", "a", A, "'b' of model 'adder' is missing"),
        ("adder", "c", A, "no input 'c'"),
        ("adder", "a", A[:, :3], "does not fit"),
        ("adder", "a", A.astype(np.float64), "has datatype FP64"),
    ],
)
def test_wrong_requests_are_refused_with_a_reason(client, model, name, array, said: str):
    datatype = {"float32": "FP32", "float64": "FP64"}[array.dtype.name]
    inputs = [tensor(client.library, name, datatype, np.ascontiguousarray(array))]
    if "missing" not in said:
        inputs.append(tensor(client.library, "b", "FP32", B))
    with pytest.raises(InferenceServerException, match=said):
        client.infer(model, inputs)


def test_a_model_that_raises_keeps_its_text(client):
    inputs = [
        tensor(client.library, "a", "FP32", np.full((1, 4), np.inf, dtype=np.float32)),
        tensor(client.library, "b", "FP32", B[:1]),
    ]
    with pytest.raises(InferenceServerException) as raised:
        client.infer("adder", inputs)

    assert "does not count" not in str(raised.value)


def test_a_deadline_ends_the_wait(mesh: RunningMesh):
    with triton_grpc.InferenceServerClient(mesh.address) as client:
        inputs = [
            tensor(triton_grpc, "a", "FP32", np.full((1, 4), -1, dtype=np.float32)),
            tensor(triton_grpc, "b", "FP32", B[:1]),
        ]
        with pytest.raises(InferenceServerException, match=r"(?i)deadline"):
            client.infer("adder", inputs, client_timeout=0.3)


def test_calls_of_several_clients_are_one_batch(mesh: RunningMesh):
    def infer(index: int) -> int:
        with triton_grpc.InferenceServerClient(mesh.address) as client:
            x = np.array([index], dtype=np.int64)
            result = client.infer("batched", [tensor(triton_grpc, "x", "INT64", x)])
            return int(result.as_numpy("size"))

    with ThreadPoolExecutor(4) as threads:
        assert [4, 4, 4, 4] == list(threads.map(infer, range(4)))


def test_a_stream_answers_several_times(mesh: RunningMesh):
    answers: queue.Queue[tuple[object, object]] = queue.Queue()
    with triton_grpc.InferenceServerClient(mesh.address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        end = np.array([3], dtype=np.int32)
        client.async_stream_infer("counter", [tensor(triton_grpc, "end", "INT32", end)])
        numbers = [answers.get(timeout=_TIMEOUT_S) for _ in range(3)]
        # A wrong request is answered, and does not end the stream of the others.
        client.async_stream_infer("counter", [tensor(triton_grpc, "end", "FP32", A[0, :1])])
        _, refused = answers.get(timeout=_TIMEOUT_S)
        client.async_stream_infer(
            "counter", [tensor(triton_grpc, "end", "INT32", np.array([1], dtype=np.int32))]
        )
        again = answers.get(timeout=_TIMEOUT_S)
        client.stop_stream()

    assert [0, 1, 2] == [int(result.as_numpy("number")[0]) for result, _ in numbers]
    assert "has datatype FP32" in str(refused)
    assert 0 == int(again[0].as_numpy("number")[0])


def test_a_model_that_streams_has_no_single_answer(client):
    inputs = [tensor(client.library, "end", "INT32", np.array([3], dtype=np.int32))]
    with pytest.raises(InferenceServerException, match="ModelStreamInfer"):
        client.infer("counter", inputs)


def test_the_application_keeps_its_own_prefix(mesh: RunningMesh):
    base = f"http://{mesh.address}"
    assert {"models": 4, "x": 1} == httpx.post(base, json={"x": 1}, timeout=_TIMEOUT_S).json()
    assert 404 == httpx.get(f"{base}/v2/nothing", timeout=_TIMEOUT_S).status_code
    assert 404 == httpx.get(f"{base}/v2/models/adder/nothing", timeout=_TIMEOUT_S).status_code
    wrong = httpx.post(f"{base}/v2/models/adder/infer", content=b"{", timeout=_TIMEOUT_S)
    assert 400 == wrong.status_code
    assert "not JSON" in json.loads(wrong.content)["error"]


def test_one_model_alone_needs_no_hop():
    with (
        running_mesh("tests.mesh.inference.apps:only") as mesh,
        triton_grpc.InferenceServerClient(mesh.address) as client,
    ):
        inputs = [tensor(triton_grpc, "a", "FP32", A), tensor(triton_grpc, "b", "FP32", B)]
        result = client.infer("adder", inputs)

        assert np.array_equal(A + B, result.as_numpy("sum"))
        assert client.is_server_ready()
