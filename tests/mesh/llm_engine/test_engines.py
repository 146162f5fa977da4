"""Engines in a mesh, through its ingress, by generated stubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

import pyserve
from pyserve.errors import DeploymentFailed
from pyserve.llm.v1 import engine_pb2 as pb
from pyserve.llm.v1 import engine_pb2_grpc
from tests.mesh.llm_engine.apps import broken, parrot, simulated
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]

TIMEOUT_S = 30
PARROT = (("application", "parrot"),)
SIMULATED = (("application", "simulated"),)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(parrot, name="parrot", route_prefix=None)
        pyserve.run(simulated, name="simulated", route_prefix=None)
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


@pytest.fixture
async def stub(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield engine_pb2_grpc.EngineStub(channel)


def _chat(text: str, **fields: Any) -> pb.GenerateRequest:
    said = pb.ChatMessage(role="user", content=[pb.ContentPart(text=text)])
    return pb.GenerateRequest(chat=pb.Chat(messages=[said]), stream=True, **fields)


def _say(stub: Any, text: str, metadata: Any = PARROT, **fields: Any) -> Any:
    return stub.Generate(_chat(text, **fields), metadata=metadata, timeout=TIMEOUT_S)


async def _text(call: Any) -> str:
    return "".join([each.text async for each in call])


async def test_deltas_come_one_by_one_and_end(stub: Any):
    found = [each async for each in _say(stub, "a b c")]
    assert ["a ", "b ", "c ", ""] == [each.text for each in found]
    assert pb.FINISH_REASON_STOP == found[-1].finish_reason
    assert 3 == found[-1].usage.completion_tokens


async def test_the_model_is_that_of_the_deployment(stub: Any):
    found = await stub.Models(pb.ModelsRequest(), metadata=PARROT, timeout=TIMEOUT_S)
    assert [("Parrot", ["generate", "chat"])] == [
        (each.id, list(each.tasks)) for each in found.models
    ]
    model = (("multiplexed_model_id", "mine"),)
    assert "Parrot  mine" == await _text(_say(stub, "model", PARROT + model, model="Parrot"))


@pytest.mark.parametrize(
    ("text", "fields", "code", "details"),
    [
        ("a", {"model": "other"}, "NOT_FOUND", "the model 'other' does not exist; there is Parrot"),
        ("full", {}, "RESOURCE_EXHAUSTED", "the parrot is busy"),
        ("a full", {}, "RESOURCE_EXHAUSTED", "the parrot is busy"),
    ],
)
async def test_an_error_of_the_request_is_told_to_its_caller(
    stub: Any, text: str, fields: Any, code: str, details: str
):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _text(_say(stub, text, **fields))
    assert (grpc.StatusCode[code], details) == (caught.value.code(), caught.value.details())


async def test_a_pause_before_the_next_attempt_is_told(stub: Any):
    call = _say(stub, "full")
    with pytest.raises(grpc.aio.AioRpcError):
        await _text(call)
    assert ("retry-after", "3") in tuple(await call.trailing_metadata())


@pytest.mark.parametrize("text", ["a fail", "a mistake"])
async def test_a_failure_of_the_engine_is_its_own(stub: Any, text: str):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _text(_say(stub, text))
    assert caught.value.code() in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
    assert "a " == await _text(_say(stub, "a"))


async def test_a_method_that_the_engine_lacks_is_named(stub: Any):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Embed(pb.EmbedRequest(), metadata=PARROT, timeout=TIMEOUT_S)
    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code()
    assert "the engine Parrot has no method 'embed'" == caught.value.details()


async def _load(stub: Any, metadata: Any = PARROT) -> Any:
    return await stub.Load(pb.LoadRequest(), metadata=metadata, timeout=TIMEOUT_S)


@pytest.mark.parametrize("text", ["a wait", "a babble"])
async def test_a_client_that_leaves_stops_the_engine(stub: Any, text: str):
    call = _say(stub, text)
    await call.read()
    assert 1 == (await _load(stub)).running_requests
    call.cancel()

    async def is_idle() -> object:
        return not (await _load(stub)).running_requests

    await eventually(is_idle)


async def test_a_deadline_stops_the_engine(stub: Any):
    call = stub.Generate(_chat("wait"), metadata=PARROT, timeout=0.3)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _text(call)
    assert grpc.StatusCode.DEADLINE_EXCEEDED is caught.value.code()

    async def is_idle() -> object:
        return not (await _load(stub)).running_requests

    await eventually(is_idle)


async def test_a_generation_is_aborted_by_its_id(stub: Any):
    call = _say(stub, "a wait", request_id="mine")
    deltas = aiter(call)
    await anext(deltas)
    request = pb.AbortRequest(request_id="mine")
    assert (await stub.Abort(request, metadata=PARROT, timeout=TIMEOUT_S)).found
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _text(deltas)
    assert (grpc.StatusCode.CANCELLED, "mine was aborted") == (
        caught.value.code(),
        caught.value.details(),
    )


async def test_an_engine_that_cannot_start_says_why():
    with pytest.raises(DeploymentFailed) as caught:
        await asyncio.to_thread(pyserve.run, broken, name="broken", route_prefix=None)
    assert "NeverStarts.start (" in str(caught.value)
    assert "there is no model.gguf" in str(caught.value)


async def test_the_simulated_engine_answers_a_chat_over_the_wire(stub: Any):
    request = {"max_tokens": 5, "sampling": pb.Sampling(temperature=0)}
    found = [each async for each in _say(stub, "hello there", SIMULATED, **request)]
    assert pb.FINISH_REASON_LENGTH == found[-1].finish_reason
    assert 5 == found[-1].usage.completion_tokens
    again = [each async for each in _say(stub, "hello there", SIMULATED, **request)]
    assert "".join(each.text for each in found) == "".join(each.text for each in again)


async def test_a_thousand_callers_that_leave_leave_nothing_behind(stub: Any):
    async def leave(number: int) -> None:
        call = _say(stub, f"caller {number}", SIMULATED, max_tokens=1000 + number)
        for _ in range(number % 3):
            await call.read()
        call.cancel()

    await asyncio.gather(*map(leave, range(1000)))

    async def is_idle() -> bool:
        load = await _load(stub, SIMULATED)
        return (load.running_requests, load.waiting_requests, load.running_tokens) == (0, 0, 0)

    await eventually(is_idle)
