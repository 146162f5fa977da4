"""How the public names are typed; mypy reads this file, nothing runs it."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, assert_type

import grpc
import grpc.aio

import pyserve
from pyserve.driver.status import MeshStatus
from pyserve.launch import Capabilities, Ended, Event, Launcher, ReplicaOrder, Room, Site
from pyserve.types import ReplicaId
from services.echo import echo_pb2, echo_pb2_grpc


class Plain:
    pass


class Service(echo_pb2_grpc.EchoServicer):
    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
    async def Echo(self, requests: list[echo_pb2.EchoRequest]) -> list[echo_pb2.EchoReply]:
        raise pyserve.Abort(grpc.StatusCode.NOT_FOUND, "none", [("key-bin", b"value")])

    @pyserve.method(idempotent=True, weight=0, timeout_s=1.5)
    async def Perform(
        self,
        request: echo_pb2.PerformRequest,
        context: grpc.aio.ServicerContext[echo_pb2.PerformRequest, echo_pb2.PerformReply],
    ) -> echo_pb2.PerformReply:
        return echo_pb2.PerformReply(payload=request.payload)


@pyserve.batch
async def double(numbers: list[int]) -> Sequence[int]:
    return [2 * number for number in numbers]


async def calls(service: Service, handle: pyserve.DeploymentHandle) -> None:
    assert_type(await service.Echo(echo_pb2.EchoRequest()), echo_pb2.EchoReply)
    assert_type(await double(1), int)
    assert_type(handle.channel(), grpc.aio.Channel)


async def handles(handle: pyserve.DeploymentHandle[Plain]) -> None:
    assert_type(handle.options(stream=True), pyserve.DeploymentHandle[Plain])
    assert_type(handle.predict, pyserve.DeploymentHandle[Any])
    response: pyserve.DeploymentResponse[int] = handle.predict.remote(1, key="value")
    assert_type(await response, int)
    assert_type(response.result(timeout_s=1.0), int)
    assert_type(await (await response._to_object_ref()), int)
    assert_type(response.request_id, str)
    stream: pyserve.DeploymentResponseGenerator[str] = handle.tokens.options(stream=True).remote()
    async for item in stream:
        assert_type(item, str)
    assert_type(pyserve.get(pyserve.put(1.5)), float)
    assert_type(pyserve.get([response]), list[int])
    assert_type(pyserve.get_app_handle("x"), pyserve.DeploymentHandle)
    everywhere = handle.broadcast("predict", 1)
    assert_type(everywhere.results(timeout_s=1.0, return_exceptions=True), list[Any])
    assert_type(await everywhere.results_async(timeout_s=1.0, return_exceptions=True), list[Any])
    async with handle.choose_replica() as selection:
        assert_type(selection.replica_id, ReplicaId)
        handle.dispatch(selection, 1)


def deployments() -> None:
    plain = pyserve.deployment(Plain)
    assert_type(plain, pyserve.Deployment[Plain, []])
    with_options = pyserve.deployment(num_replicas=2)(Plain)
    assert_type(with_options, pyserve.Deployment[Plain, []])
    assert_type(plain.options(name="other"), pyserve.Deployment[Plain, []])
    assert_type(plain.bind(), pyserve.Application[Plain])
    plain.bind(1, key=2)  # type: ignore[call-arg]  # the constructor takes nothing
    assert_type(plain.target, type[Plain])
    assert_type(pyserve.ingress(print)(Plain), type[Plain])
    assert_type(pyserve.deployment(pyserve.ingress(print)(Plain)), pyserve.Deployment[Plain, []])


def driver(app: pyserve.Application) -> None:
    assert_type(pyserve.run(app, name="x", route_prefix=None), pyserve.DeploymentHandle)
    assert_type(pyserve.status(), MeshStatus)
    pyserve.start(address="127.0.0.1:0", launcher={"name": "external"})
    pyserve.run(app, launcher="process")
    pyserve.run(app, launcher=1)  # type: ignore[arg-type]  # a name, or a mapping that has one
    pyserve.delete("x")
    pyserve.shutdown(grace_s=1.0)


def context() -> None:
    assert_type(pyserve.get_replica_context(), pyserve.ReplicaContext)
    pyserve.run(Plain)  # type: ignore[arg-type]  # a class is no application
    pyserve.Abort("NOT_FOUND")  # type: ignore[arg-type]  # a status code is wanted


def by_queue(ctx: pyserve.config.AutoscalingContext) -> tuple[float, dict[str, Any]]:
    assert_type(ctx.total_num_requests, float)
    assert_type(ctx.running_replicas, list[ReplicaId])
    assert_type(ctx.deployment_id, pyserve.config.DeploymentID)
    return ctx.total_queued_requests, ctx.policy_state


def scaling() -> None:
    policy = pyserve.config.AutoscalingPolicy(policy_function=by_queue)
    config = pyserve.config.AutoscalingConfig(max_replicas=4, policy=policy)
    assert_type(config.latency_target, tuple[str, float] | None)
    pyserve.deployment(num_replicas="auto", autoscaling_config=config)(Plain)
    pyserve.config.AutoscalingConfig(max_replicas="4")  # type: ignore[arg-type]  # a number


def language_models() -> None:
    config = pyserve.llm.LLMConfig(
        model_loading_config={"model_id": "qwen"}, deployment_config={"num_replicas": 2}
    )
    assert_type(config.model_id, str)
    assert_type(config.lora_config, pyserve.llm.LoraConfig | None)
    assert_type(pyserve.llm.build_openai_app({"llm_configs": [config]}), pyserve.Application)
    args = pyserve.llm.LLMServingArgs(llm_configs=[config, {"llm_engine": "simulated"}])
    assert_type(args.llm_configs, list[pyserve.llm.LLMConfig])
    pyserve.llm.build_llm_deployment(config, deployment_cls=pyserve.llm.LLMServer)
    pyserve.llm.build_llm_deployment(config, prefix="x")  # type: ignore[call-arg]


class Own:
    name = "own"
    capabilities = Capabilities(acts_on=frozenset({"env_vars"}))

    def __init__(self, site: Site) -> None: ...

    async def open(self) -> None: ...

    async def start(self, order: ReplicaOrder) -> int:
        return len(order.arguments("unix:/c"))

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None: ...

    def room(self) -> Room:
        return Room(1, "one at a time")

    async def watch(self) -> AsyncIterator[Event]:
        yield Ended(ReplicaId("Plain#abcde"), "ended with exit code 0")

    async def close(self) -> None: ...


def launchers(site: Site) -> Launcher:
    return Own(site)
