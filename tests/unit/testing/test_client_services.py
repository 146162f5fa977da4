"""``pyserve.testing.client`` with services: what an ingress and its replicas do, these do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

import pyserve
from pyserve import inference, testing
from services.echo import echo_pb2, echo_pb2_grpc

pytestmark = pytest.mark.slow
TIMEOUT_S = 20


class Stamp(grpc.aio.ServerInterceptor):
    """Refuses calls that say so."""

    def __init__(self, word: str) -> None:
        self._word = word

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        if ("refuse", self._word) not in [tuple(pair) for pair in details.invocation_metadata]:
            return await continuation(details)

        async def refuse(_request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"by {self._word}")

        return grpc.unary_unary_rpc_method_handler(refuse)


@pyserve.deployment
class Busy:
    async def __call__(self) -> None:
        raise pyserve.exceptions.BackPressureError("full")


@pyserve.deployment(
    interceptors=[Stamp("outer"), Stamp("inner")], max_receive_message_bytes=5 << 20
)
class Batching(echo_pb2_grpc.EchoServicer):
    """Has each form of method that a batch layer may stand before, and others."""

    def __init__(self, busy: pyserve.DeploymentHandle) -> None:
        self._busy = busy

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.05)
    async def Echo(self, requests: list[Any]) -> list[Any]:
        name = pyserve.get_replica_context().deployment.encode()
        return [echo_pb2.EchoReply(payload=each.payload[:4] + b" " + name) for each in requests]

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.05)
    async def Perform(self, requests: list[Any], contexts: list[Any]) -> list[Any]:
        found = [dict(each.invocation_metadata()).get("word", "") for each in contexts]
        return [echo_pb2.PerformReply(payload=str(each).encode()) for each in found]

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.05)
    async def EchoStream(self, requests: list[Any]) -> AsyncIterator[list[Any]]:
        for number in range(2):
            yield [echo_pb2.EchoReply(payload=b"%d" % number) for _ in requests]

    @pyserve.method(timeout_s=0.05)
    async def EchoSuspend(self, request: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    @pyserve.method(timeout_s=TIMEOUT_S)
    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.05)
    async def PerformSync(self, requests: list[Any]) -> list[Any]:
        return [echo_pb2.PerformReply(payload=b"in time") for _ in requests]

    async def Count(self, request: Any) -> Any:
        await self._busy.remote()


@pytest.fixture(scope="module")
def stub() -> Iterator[Any]:
    with testing.client(Batching.bind(Busy.bind()), timeout_s=TIMEOUT_S) as client:
        yield client.stub(echo_pb2_grpc.EchoStub)


def test_batched_methods_answer(stub: Any) -> None:
    request = echo_pb2.EchoRequest(payload=b"abcd")
    calls = [stub.Echo.future(request, timeout=TIMEOUT_S) for _ in range(3)]
    assert [b"abcd Batching"] * 3 == [call.result().payload for call in calls]
    perform = echo_pb2.PerformRequest()
    metadata = (("word", "told"),)
    assert b"told" == stub.Perform(perform, metadata=metadata, timeout=TIMEOUT_S).payload
    assert b"in time" == stub.PerformSync(perform, timeout=TIMEOUT_S).payload
    stream = stub.EchoStream(echo_pb2.StreamRequest(), timeout=TIMEOUT_S)
    assert [b"0", b"1"] == [each.payload for each in stream]


@pytest.mark.parametrize("word", ["outer", "inner"])
def test_interceptors_are_asked(stub: Any, word: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stub.Echo(echo_pb2.EchoRequest(), metadata=(("refuse", word),), timeout=TIMEOUT_S)
    assert grpc.StatusCode.PERMISSION_DENIED is refused.value.code()
    assert f"by {word}" == refused.value.details()


def test_the_limits_of_a_deployment_hold(stub: Any) -> None:
    assert (
        b"xxxx Batching"
        == stub.Echo(echo_pb2.EchoRequest(payload=b"x" * (9 << 19)), timeout=TIMEOUT_S).payload
    )
    with pytest.raises(grpc.RpcError) as refused:
        stub.Echo(echo_pb2.EchoRequest(payload=b"x" * (6 << 20)), timeout=TIMEOUT_S)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is refused.value.code()
    with pytest.raises(grpc.RpcError) as late:
        # The method's time limit is for calls without a deadline of their own.
        stub.EchoSuspend(echo_pb2.EchoRequest())
    assert grpc.StatusCode.DEADLINE_EXCEEDED is late.value.code()
    assert "took longer than 0.05 s" in str(late.value.details())


def test_a_refusal_behind_a_method_keeps_its_status(stub: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stub.Count(echo_pb2.CountRequest(), timeout=TIMEOUT_S)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is refused.value.code()


def test_places_and_queue_of_a_deployment_hold_for_clients() -> None:
    with (
        testing.client(Holding.bind(), name="holding", timeout_s=TIMEOUT_S) as client,
        ThreadPoolExecutor() as pool,
    ):
        stub = client.stub(echo_pb2_grpc.EchoStub)
        held = pool.submit(stub.Echo, echo_pb2.EchoRequest(payload=b"x"), timeout=TIMEOUT_S)
        client.handle.until_held.remote().result(timeout_s=TIMEOUT_S)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Echo(echo_pb2.EchoRequest(), timeout=TIMEOUT_S)
        assert grpc.StatusCode.RESOURCE_EXHAUSTED is refused.value.code()
        client.handle.let_go.remote().result(timeout_s=TIMEOUT_S)
        assert b"x" == held.result().payload


@pyserve.deployment(max_ongoing_requests=1, max_queued_requests=0)
class Holding(echo_pb2_grpc.EchoServicer):
    """Keeps its only place until it is told to let go."""

    def __init__(self) -> None:
        self._held, self._gate = asyncio.Event(), asyncio.Event()

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        self._held.set()
        await self._gate.wait()
        return echo_pb2.EchoReply(payload=request.payload)

    @pyserve.method(weight=0)
    async def until_held(self) -> None:
        await self._held.wait()

    @pyserve.method(weight=0)
    async def let_go(self) -> None:
        self._gate.set()


def test_a_model_is_answered_at_both_of_its_doors() -> None:
    with testing.client(Scaler.bind(), name="model", timeout_s=TIMEOUT_S) as client:
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
        answer = client.http.post("/v2/models/scaler/infer", json=body).json()
        assert [2.0, 4.0] == answer["outputs"][0]["data"]
        ready: Any = client.channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
        # ModelReadyRequest(name="scaler"), and ModelReadyResponse(ready=True).
        assert b"\x08\x01" == ready(b"\x0a\x06scaler", timeout=TIMEOUT_S)


def test_each_of_several_models_is_answered_over_grpc() -> None:
    app = Scaler.options(name="First").bind(Adder.options(name="Second").bind())
    with testing.client(app, name="models", timeout_s=TIMEOUT_S) as client:
        ready: Any = client.channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
        for name in (b"scaler", b"adder"):
            request = b"\x0a" + bytes([len(name)]) + name
            assert b"\x08\x01" == ready(request, timeout=TIMEOUT_S)


@pyserve.deployment
@inference.model(
    name="adder",
    inputs=[inference.Tensor("x", "FP32", (-1, 2))],
    outputs=[inference.Tensor("y", "FP32", (-1, 2))],
)
class Adder:
    async def infer(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x + 1}


@pyserve.deployment
@inference.model(
    name="scaler",
    inputs=[inference.Tensor("x", "FP32", (-1, 2))],
    outputs=[inference.Tensor("y", "FP32", (-1, 2))],
)
class Scaler:
    def __init__(self, *others: pyserve.DeploymentHandle) -> None:
        self._others = others

    async def infer(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x * 2}
