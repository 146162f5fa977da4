"""Batches of methods that have no decorator: which are made, and what their calls get."""

import asyncio
import contextlib
from typing import Any

import pytest

import pyserve
from pyserve.api.handles.framing import FLUSH_METHOD
from pyserve.batching import Batched
from pyserve.config import BatchingConfig
from pyserve.errors import UsageError
from pyserve.replica.batching_doors import batched_methods, with_batched_rpcs
from pyserve.replica.checks import check_class
from pyserve.replica.servicers import find_services
from services.echo import echo_pb2_grpc
from tests.unit.replica.native_client import Client
from tests.unit.replica.plain_server import call, framed, serving

CONFIG = BatchingConfig(max_batch_size=4, timeout_s=30.0)


class Model:
    async def __call__(self, numbers: list[int]) -> list[tuple[int, int]]:
        return [(len(numbers), number) for number in numbers]

    def shout(self, texts: list[str]) -> list[str]:
        return [text.upper() for text in texts]

    async def columns(self, request: Any) -> dict[str, Any]:
        data = await request.json()
        return {"doubled": [2 * value for value in data["value"]], "size": len(data["value"])}

    @pyserve.batch
    async def decorated(self, numbers: list[int]) -> list[int]:
        return numbers

    @staticmethod
    def static(number: int) -> int:
        return number


def batching(
    instance: object, config: BatchingConfig
) -> contextlib.AbstractAsyncContextManager[Client]:
    return serving(instance, batched=batched_methods(type(instance), config))


@pytest.mark.parity("S-21")
async def test_a_full_batch_leaves_at_once_and_its_results_are_in_order() -> None:
    async with batching(Model(), CONFIG) as client:
        results = await asyncio.gather(*(call(client, "__call__", each) for each in range(8)))
    assert [(4, number) for number in range(8)] == list(results)


@pytest.mark.parity("S-21")
async def test_a_batch_that_is_not_full_leaves_when_its_time_is_over() -> None:
    async with batching(Model(), BatchingConfig(max_batch_size=4, timeout_s=0.2)) as client:
        results = await asyncio.gather(*(call(client, "__call__", each) for each in range(3)))
    assert [(3, number) for number in range(3)] == list(results)


async def test_methods_are_batched_by_name_and_others_are_not() -> None:
    config = BatchingConfig(max_batch_size=2, timeout_s=30.0, methods=("shout", "columns"))
    async with batching(Model(), config) as client:
        assert ["A", "B"] == list(
            await asyncio.gather(call(client, "shout", "a"), call(client, "shout", "b"))
        )
        assert [(2, 5), (2, 6)] == await call(client, "__call__", [5, 6])


async def test_a_handler_of_one_request_gets_columns_and_its_dict_is_split() -> None:
    config = BatchingConfig(max_batch_size=2, timeout_s=30.0, methods=("columns",))
    async with batching(Model(), config) as client:
        results = await asyncio.gather(
            *(call(client, "columns", {"value": value}) for value in (1, 2))
        )
    assert [{"doubled": 2, "size": 2}, {"doubled": 4, "size": 2}] == list(results)


async def test_code_of_the_class_calls_the_method_as_it_was_written() -> None:
    instance = Model()
    async with batching(instance, CONFIG):
        assert [(1, 7)] == await instance([7])


async def test_flush_lets_a_batch_leave_that_waits_for_company() -> None:
    async with batching(Model(), CONFIG) as client:
        waiting = asyncio.ensure_future(call(client, "__call__", 1))
        while not waiting.done():
            await asyncio.sleep(0)
            await call(client, FLUSH_METHOD, "__call__")
        assert (1, 1) == waiting.result()
        refused = await client.unary(FLUSH_METHOD, framed("nothing"))
        assert "no method 'nothing'" in refused.details


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        (("shuot",), "Model has no method 'shuot'; did you mean 'shout'"),
        (("decorated",), "Model.decorated has @pyserve.batch already"),
        (("static",), "no static ones"),
    ],
)
def test_what_cannot_be_batched_is_named(methods: tuple[str, ...], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        batched_methods(Model, BatchingConfig(methods=methods))


async def test_a_function_is_batched_too() -> None:
    async def lengths(texts: list[str]) -> list[int]:
        return [len(text) + 10 * len(texts) for text in texts]

    function = batched_methods(lengths, BatchingConfig(max_batch_size=2, timeout_s=30.0))[
        "__call__"
    ]
    async with serving(function) as client:
        assert [21, 22] == list(
            await asyncio.gather(*(call(client, "__call__", text) for text in ("a", "bb")))
        )
    with pytest.raises(UsageError, match="has no methods"):
        batched_methods(lengths, BatchingConfig(methods=("__call__", "other")))


class Servicer(echo_pb2_grpc.EchoServicer):
    async def Echo(self, requests: list[Any]) -> list[Any]:
        return requests

    async def Collect(self, requests: Any) -> Any:
        return [request async for request in requests]


def test_rpcs_are_batched_too_unless_they_take_a_stream() -> None:
    methods, _ = check_class(Servicer, find_services(Servicer))
    batched = batched_methods(Servicer, BatchingConfig(methods=("Echo",)))
    found = with_batched_rpcs(methods, batched)
    assert isinstance(found["/services.echo.Echo/Echo"].function, Batched)
    with pytest.raises(UsageError, match="Collect takes a stream of requests"):
        with_batched_rpcs(methods, batched_methods(Servicer, BatchingConfig(methods=("Collect",))))
