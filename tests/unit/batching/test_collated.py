"""Methods without a decorator: lists with ``json()``, dicts of columns, plain functions."""

import asyncio
import threading
from typing import Any

import pytest

import pyserve
from pyserve.batching import BatchOptions, BatchRequest, make_batched
from pyserve.batching.calls import split_columns
from pyserve.config.parts import BatchingConfig
from pyserve.errors import BatchError
from tests.unit.batching.test_batch_queue import virtual


class FakeRequest:
    """An HTTP request as far as a handler reads it."""

    def __init__(self, body: Any) -> None:
        self.body = body

    async def json(self) -> Any:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


class PlainRequest:
    def __init__(self, body: Any) -> None:
        self.body = body

    def json(self) -> Any:
        return self.body


def batched(function: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {"max_batch_size": 4, "batch_wait_timeout_s": 0.1, **options}
    return make_batched(function, BatchOptions(**settings))


class HousePricePredictor:
    """The handler of the article: it reads one request and answers with a dict."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def __call__(self, request: Any) -> dict[str, Any]:
        data = await request.json()
        self.calls.append(data["features"])
        predictions = [[sum(row)] for row in data["features"]]
        return {"predictions": predictions, "unit": "EUR"}


@pytest.mark.parity("T2")
@pytest.mark.parity("S-21")
@virtual
async def test_a_handler_of_one_request_runs_on_a_batch_of_them():
    predictor = HousePricePredictor()
    call = batched(HousePricePredictor.__call__).bind(predictor)
    results = await asyncio.gather(
        *(call(FakeRequest({"features": [number, 1]})) for number in range(6))
    )
    assert [{"predictions": [number + 1], "unit": "EUR"} for number in range(6)] == results
    assert [[[0, 1], [1, 1], [2, 1], [3, 1]], [[4, 1], [5, 1]]] == predictor.calls


@pytest.mark.parity("T1")
@pytest.mark.parity("S-18")
@pytest.mark.parametrize("name", ["timeout_s", "batch_wait_timeout_s"])
def test_a_batching_config_is_understood_as_it_is_written(name: str) -> None:
    config = BatchingConfig.of(
        "batching_config",
        {"max_batch_size": 3, name: 0.25, "stride_s": 0.5, "allow_small_batch": False},
    )
    expected = BatchOptions(
        max_batch_size=3, batch_wait_timeout_s=0.25, stride_s=0.5, allow_small_batch=False
    )
    assert expected == make_batched(HousePricePredictor.__call__, config).options


def test_a_batching_config_may_learn_its_wait() -> None:
    config = BatchingConfig(timeout_s="auto")
    assert make_batched(HousePricePredictor.__call__, config).options.is_auto


@pytest.mark.parity("T2")
@virtual
async def test_iterating_a_batch_request_gives_the_single_ones():
    async def handler(requests: BatchRequest) -> list[Any]:
        assert isinstance(requests, list)
        assert len(requests) == 2
        return [await request.json() for request in requests]

    call = batched(handler, max_batch_size=2)
    assert ["a", "b"] == await asyncio.gather(call(FakeRequest("a")), call(FakeRequest("b")))


async def test_bodies_that_are_no_dicts_become_a_list():
    requests = BatchRequest([FakeRequest([1]), PlainRequest({"a": 1}), 3])
    assert [[1], {"a": 1}, 3] == await requests.json()


async def test_json_may_be_a_plain_function():
    requests = BatchRequest([PlainRequest({"a": 1}), PlainRequest({"a": 2})])
    assert {"a": [1, 2]} == await requests.json()


@virtual
async def test_a_request_that_cannot_be_read_fails_alone():
    predictor = HousePricePredictor()
    call = batched(HousePricePredictor.__call__).bind(predictor)
    results: Any = await asyncio.gather(
        call(FakeRequest({"features": [1]})),
        call(FakeRequest(ValueError("no JSON"))),
        call(FakeRequest({"feature": [1]})),
        call(FakeRequest({"features": [2]})),
        return_exceptions=True,
    )
    good, broken, other, last = results
    assert ([1], [2]) == (good["predictions"], last["predictions"])
    assert isinstance(broken, ValueError)
    assert isinstance(other, BatchError)
    assert other.code.name == "INVALID_ARGUMENT"
    assert "['feature']" in str(other)


@virtual
async def test_when_no_request_can_be_read_each_gets_its_own_error():
    call = batched(HousePricePredictor.__call__, max_batch_size=2).bind(HousePricePredictor())
    results = await asyncio.gather(
        *(call(FakeRequest(ValueError(text))) for text in "ab"), return_exceptions=True
    )
    assert ["a", "b"] == [str(result) for result in results]


def test_columns_are_split_and_the_rest_is_copied():
    numpy = pytest.importorskip("numpy")
    result = {
        "rows": [1, 2],
        "pair": ("x", "y"),
        "array": numpy.array([[1], [2]]),
        "text": "ab",
        "short": [7],
        "scalar": numpy.float64(3),
        "table": {"a": 1, "b": 2},
    }
    first, second = split_columns(result, 2)
    assert (1, "x", [1]) == (first["rows"], first["pair"], first["array"].tolist())
    assert (2, "y", [2]) == (second["rows"], second["pair"], second["array"].tolist())
    for each in (first, second):
        assert ("ab", [7], 3.0, {"a": 1, "b": 2}) == (
            each["text"],
            each["short"],
            each["scalar"],
            each["table"],
        )


async def test_a_plain_function_runs_in_a_thread():
    threads = []

    def handler(items: list[int]) -> list[int]:
        threads.append(threading.current_thread())
        return [item + 1 for item in items]

    assert 2 == await batched(handler, batch_wait_timeout_s=0.0)(1)
    assert threading.main_thread() not in threads


@virtual
async def test_a_generator_yields_columns_too():
    async def handler(request: Any) -> Any:
        data = await request.json()
        for step in range(2):
            yield {"text": [f"{name}{step}" for name in data["name"]], "step": step}

    call = batched(handler, max_batch_size=2)

    async def read(stream: Any) -> Any:
        return [part async for part in stream]

    first, second = await asyncio.gather(
        *(read(call(FakeRequest({"name": name}))) for name in "ab")
    )
    assert [{"text": "a0", "step": 0}, {"text": "a1", "step": 1}] == first
    assert [{"text": "b0", "step": 0}, {"text": "b1", "step": 1}] == second


def test_a_plain_generator_is_refused():
    def handler(items: list[int]) -> Any:
        yield items

    with pytest.raises(BatchError, match="plain generator"):
        batched(handler)


@virtual
async def test_a_decorated_method_may_not_return_columns():
    """Only ``batching_config`` reads dicts: a decorated method was written for lists."""

    @pyserve.batch(max_batch_size=1)
    async def function(items: list[int]) -> Any:
        return {"items": items}

    with pytest.raises(BatchError, match="returned dict"):
        await function(1)
