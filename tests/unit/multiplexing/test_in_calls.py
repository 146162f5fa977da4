"""The model id of a call, and the models that it uses, through a server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

import pyserve
from pyserve import aio
from tests.support.waiting import eventually


class Model:
    def __init__(self, model_id: str) -> None:
        self.model_id = model_id
        self.loaded_for = pyserve.get_multiplexed_model_id()


class Service:
    """Asks for the model in all the places where user code may be."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def get_model(self, model_id: str) -> Model:
        await asyncio.sleep(0)
        return Model(model_id)

    async def unary(self, request: bytes, context: Any) -> bytes:
        return await asyncio.create_task(self.nested())

    async def nested(self) -> bytes:
        model = await self.get_model(pyserve.get_multiplexed_model_id())
        return f"{model.model_id} {model.loaded_for}".encode()

    async def stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for _ in range(2):
            yield await self.nested()
            await self.go_on.wait()

    async def batched(self, request: bytes, context: Any) -> bytes:
        answer: bytes = await self.together(request)
        return answer

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0.01)
    async def together(self, requests: list[bytes]) -> list[bytes]:
        model_id = pyserve.get_multiplexed_model_id()
        self.batches.append((model_id, len(requests)))
        model = await self.get_model(model_id)
        await self.go_on.wait()
        return [request + b" " + model.model_id.encode() for request in requests]


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[Any]:
    server = aio.server()
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    handlers: dict[str, Any] = {
        "unary": unary(service.unary),
        "batched": unary(service.batched),
        "stream": stream(service.stream),
    }
    server.add_registered_method_handlers("p.S", handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


def metadata(model_id: str) -> tuple[tuple[str, str], ...]:
    return (("multiplexed_model_id", model_id),)


@pytest.mark.parity("S-28")
async def test_the_id_is_known_in_handlers_nested_calls_streams_batches_and_loaders():
    async with serving(Service()) as channel:
        unary = await channel.unary_unary("/p.S/unary")(b"", metadata=metadata("v1"))
        stream = channel.unary_stream("/p.S/stream")(b"", metadata=metadata("v2"))
        items = [item async for item in stream]
        batched = await channel.unary_unary("/p.S/batched")(b"x", metadata=metadata("v3"))

    assert b"v1 v1" == unary
    assert [b"v2 v2", b"v2 v2"] == items
    assert b"x v3" == batched


@pytest.mark.parity("S-28")
async def test_a_call_without_an_id_has_the_empty_one():
    class Telling(Service):
        async def unary(self, request: bytes, context: Any) -> bytes:
            return f"<{pyserve.get_multiplexed_model_id()}>".encode()

    async with serving(Telling()) as channel:
        assert b"<>" == await channel.unary_unary("/p.S/unary")(b"")


async def test_a_stream_keeps_its_model_until_its_last_item():
    service = Service()
    service.go_on.clear()
    async with serving(service) as channel:
        stream = channel.unary_stream("/p.S/stream")(b"", metadata=metadata("v1"))
        assert b"v1 v1" == await stream.read()
        assert 1 == service.get_model.stats().pinned
        service.go_on.set()
        assert b"v1 v1" == await stream.read()
        assert grpc.aio.EOF is await stream.read()
        await eventually(lambda: service.get_model.stats().pinned == 0)


async def test_a_cancelled_call_lets_go_of_its_model():
    service = Service()
    service.go_on.clear()
    async with serving(service) as channel:
        stream = channel.unary_stream("/p.S/stream")(b"", metadata=metadata("v1"))
        await stream.read()
        stream.cancel()
        await eventually(lambda: service.get_model.stats().pinned == 0)
    assert 1 == service.get_model.stats().models


@pytest.mark.parity("S-37")
async def test_a_batch_is_of_one_model_and_keeps_it_while_it_runs():
    """200 concurrent calls of five models: no batch mixes them, each answer is its own."""
    service = Service()
    async with serving(service) as channel:
        call = channel.unary_unary("/p.S/batched")

        async def one(index: int) -> bytes:
            answer: bytes = await call(f"{index}".encode(), metadata=metadata(f"v{index % 5}"))
            return answer

        found = await asyncio.gather(*(one(index) for index in range(200)))
    assert [f"{index} v{index % 5}".encode() for index in range(200)] == found
    assert {f"v{index}" for index in range(5)} == {model_id for model_id, _ in service.batches}
    assert 200 == sum(size for _, size in service.batches)
    assert len(service.batches) < 150
    await eventually(lambda: service.get_model.stats().pinned == 0)


@pytest.mark.parity("S-37")
async def test_the_model_of_a_running_batch_is_not_evicted():
    service = Service()
    service.go_on.clear()
    async with serving(service) as channel:
        batched = channel.unary_unary("/p.S/batched")(b"x", metadata=metadata("v0"))
        await eventually(lambda: service.get_model.stats().pinned == 1)
        for index in (1, 2, 3):
            await channel.unary_unary("/p.S/unary")(b"", metadata=metadata(f"v{index}"))
        loads = service.get_model.stats().loads
        service.go_on.set()
        assert b"x v0" == await batched
        await channel.unary_unary("/p.S/unary")(b"", metadata=metadata("v0"))
    assert loads == service.get_model.stats().loads
