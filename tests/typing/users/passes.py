"""Code as users write it, which both checkers take as strictly as they can."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal, assert_type

import grpc.aio
import shop_pb2
import shop_pb2_grpc
from google.protobuf.timestamp_pb2 import Timestamp

import pyserve
from pyserve.handle import DeploymentHandle, DeploymentResponse, DeploymentResponseGenerator

# --- a class, decorated and in two steps ----------------------------------------------------------


@pyserve.deployment(num_replicas=2, max_ongoing_requests=8, autoscaling_config=None)
class Predictor(pyserve.Deployable):
    def __init__(self, path: str, size: int = 3) -> None:
        self.path = path
        self.size = size

    async def __call__(self, text: str) -> int:
        return len(text) * self.size

    async def predict(self, number: int, *, unit: str = "") -> str:
        return f"{number}{unit}"

    def plain(self, number: int) -> bytes:
        return bytes(number)

    async def tokens(self, count: int) -> AsyncIterator[float]:
        for number in range(count):
            yield float(number)

    def lines(self, count: int) -> Iterator[str]:
        yield from map(str, range(count))

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
    async def many(self, numbers: list[int]) -> list[str]:
        return [str(number) for number in numbers]

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def model(self, model_id: str) -> dict[str, float]:
        return {model_id: 1.0}

    @pyserve.method(idempotent=True)
    async def marked(self, number: int) -> int:
        return number


class Plain:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, text: str) -> list[str]:
        return [text] * self.size

    def grow(self) -> None:
        self.size += 1


plain = pyserve.deployment(Plain)
tuned = pyserve.deployment(num_replicas="auto", autoscaling_config={"max_replicas": 4})(Plain)
named = pyserve.deployment("other")(Plain)


def applications() -> None:
    assert_type(Predictor.bind("model.npz"), pyserve.Application[Predictor])
    assert_type(Predictor.bind("model.npz", size=4), pyserve.Application[Predictor])
    assert_type(Predictor.options(num_replicas=3).bind("m"), pyserve.Application[Predictor])
    assert_type(plain.bind(3), pyserve.Application[Plain])
    assert_type(tuned.bind(size=3), pyserve.Application[Plain])
    assert_type(named.bind(3), pyserve.Application[Plain])
    assert_type(plain.options(max_ongoing_requests=3).bind(3), pyserve.Application[Plain])
    assert_type(plain.target, type[Plain])
    assert_type(plain.name, str)
    anything: pyserve.Deployment = plain
    anything.bind(1, 2, three=3)
    some: pyserve.Deployment[Plain] = plain.options(name="some")
    assert_type(some.bind(1), pyserve.Application[Plain])


def options() -> None:
    pyserve.deployment(
        name="n",
        num_replicas=1,
        max_queued_requests=-1,
        user_config={"any": ["json"]},
        health_check_period_s=1,
        graceful_shutdown_timeout_s=2.5,
        ray_actor_options={"num_cpus": 1},
        resources=pyserve.config.Resources(num_gpus=0.5),
        runtime_env={"env_vars": {"A": "1"}},
        env_vars={"A": "1"},
        logging_config="DEBUG",
        request_router_config=pyserve.RequestRouterConfig(policy="p2c"),
        batching_config={"max_batch_size": 4},
        interceptors=[],
        serializer="msgpack",
        traffic={"other": 0.1},
        request_timeout_s=None,
    )(Plain)


# --- functions ------------------------------------------------------------------------------------


@pyserve.deployment
async def double(number: int) -> int:
    return 2 * number


@pyserve.deployment(num_replicas=2)
def shout(text: str) -> str:
    return text.upper()


def functions() -> None:
    assert_type(pyserve.run(double.bind()).remote(2).result(), int)
    assert_type(pyserve.run(shout.bind()).remote("a").result(timeout_s=1), str)
    assert_type(pyserve.run(shout.options(num_replicas=3).bind()).remote(text="a").result(), str)


# --- handles --------------------------------------------------------------------------------------


class Front:
    def __init__(
        self,
        predictor: DeploymentHandle[Predictor],
        others: list[DeploymentHandle[Plain]],
        untyped: DeploymentHandle,
    ) -> None:
        self.predictor = predictor
        self.others = others
        self.untyped = untyped

    async def __call__(self, text: str) -> str:
        assert_type(await self.predictor.remote(text), int)
        assert_type(await self.predictor[Predictor.predict].remote(1, unit="m"), str)
        assert_type(await self.predictor[Predictor.plain].remote(1), bytes)
        assert_type(await self.predictor[Predictor.marked].remote(1), int)
        assert_type(await self.others[0].remote(text), list[str])
        assert_type(await self.others[0][Plain.grow].remote(), None)
        async for number in self.predictor[Predictor.tokens].remote(3):
            assert_type(number, float)
        async for line in self.predictor[Predictor.lines].remote(3):
            assert_type(line, str)
        return str(await self.untyped.whatever.remote(1, two=2))


front = pyserve.deployment(Front)
graph = front.bind(Predictor.bind("model.npz"), [plain.bind(3)], plain.bind(1))


def from_scripts() -> None:
    handle = pyserve.run(Predictor.bind("model.npz"), name="p", route_prefix=None)
    assert_type(handle, DeploymentHandle[Predictor])
    assert_type(handle.remote("text"), DeploymentResponse[int])
    assert_type(handle.remote("text").result(timeout_s=1), int)
    assert_type(handle.options(timeout_s=1, priority=3).remote("text"), DeploymentResponse[int])
    assert_type(handle[Predictor.predict].remote(1).result(), str)
    assert_type(handle[Predictor.predict].options(timeout_s=1).remote(1).result(), str)
    assert_type(handle[Predictor.tokens].remote(2), DeploymentResponseGenerator[float])
    assert_type(list(handle[Predictor.lines].remote(2)), list[str])
    assert_type(handle.remote("text").request_id, str)
    assert_type(handle.channel(), grpc.aio.Channel)
    known: DeploymentHandle[Predictor] = pyserve.get_app_handle("p")
    assert_type(known.remote("text").result(), int)
    by_name: DeploymentResponse[str] = handle.predict.remote(1)
    assert_type(by_name.result(), str)
    stream: DeploymentResponseGenerator[float] = handle.tokens.options(stream=True).remote(1)
    assert_type(next(stream), float)


async def chained(handle: DeploymentHandle[Predictor], texts: DeploymentHandle[Plain]) -> None:
    number = handle.remote("text")
    assert_type(await handle[Predictor.predict].remote(number), str)
    assert_type(await handle.remote(texts.remote("a")), int)
    assert_type(pyserve.get(pyserve.put(1.5)), float)
    assert_type(await number._to_object_ref(), pyserve.ObjectRef[int])


# --- batches and models ---------------------------------------------------------------------------


@pyserve.batch
async def doubled(numbers: list[int]) -> list[int]:
    return [2 * number for number in numbers]


async def batches(predictor: Predictor) -> None:
    assert_type(await doubled(1), int)
    assert_type(await predictor.many(1), str)
    predictor.many.set_max_batch_size(4)
    predictor.many.flush()
    assert_type(await predictor.model("a"), dict[str, float])
    assert_type(await predictor.model(), dict[str, float])
    await predictor.model.pin("a")


class Base:
    @pyserve.batch
    async def score(self, numbers: list[int]) -> list[float]:
        return [0.0 for _ in numbers]


class Batches(Base):
    @pyserve.batch
    async def score(self, numbers: list[int]) -> list[float]:
        return [float(number) for number in numbers]


# --- services of a .proto -------------------------------------------------------------------------


class Prices(shop_pb2_grpc.ShopServicer):
    @pyserve.batch(max_batch_size=4)
    async def Price(self, requests: list[shop_pb2.PriceRequest]) -> list[shop_pb2.PriceReply]:
        return [shop_pb2.PriceReply(price=request.count * 0.5) for request in requests]

    async def Watch(
        self,
        request: shop_pb2.PriceRequest,
        context: grpc.aio.ServicerContext[shop_pb2.PriceRequest, shop_pb2.PriceReply],
    ) -> AsyncIterator[shop_pb2.PriceReply]:
        yield shop_pb2.PriceReply(price=1.0)

    async def Total(
        self,
        request_iterator: AsyncIterator[shop_pb2.PriceRequest],
        context: grpc.aio.ServicerContext[shop_pb2.PriceRequest, shop_pb2.PriceReply],
    ) -> shop_pb2.PriceReply:
        counts = [request.count async for request in request_iterator]
        if not counts:
            raise pyserve.Abort(grpc.StatusCode.INVALID_ARGUMENT, "nothing to add")
        return shop_pb2.PriceReply(price=float(sum(counts)))


prices = pyserve.deployment(num_replicas=2)(Prices).bind()


class Fixed(shop_pb2_grpc.ShopServicer):
    """Methods that it leaves out are answered with UNIMPLEMENTED."""

    def Price(self, request: shop_pb2.PriceRequest, context: object) -> shop_pb2.PriceReply:
        return shop_pb2.PriceReply(price=1.0)

    async def Haggle(
        self, request_iterator: AsyncIterator[shop_pb2.PriceRequest], context: object
    ) -> AsyncIterator[shop_pb2.PriceReply]:
        async for request in request_iterator:
            yield shop_pb2.PriceReply(price=request.count)


fixed = pyserve.deployment(Fixed)


def messages(order: shop_pb2.Order, kind: shop_pb2.Kind.ValueType) -> None:
    assert_type(fixed.bind(), pyserve.Application[Fixed])
    order.place.street = "Lane"
    order.list.append(shop_pb2.PriceRequest(kind=kind))
    order.placed.CopyFrom(Timestamp(seconds=1))
    assert_type(order.str, str)
    assert_type(order.note, str)
    assert_type(order.place, shop_pb2.Order.Place)
    assert_type(order.list[0].kind, shop_pb2.Kind.ValueType)
    assert_type(order.placed, Timestamp)
    assert_type(order.WhichOneof("payment"), Literal["card", "voucher"] | None)
    assert_type(order.HasField("place"), bool)
    assert_type(shop_pb2.Kind.Name(kind), str)
    assert_type(shop_pb2.Order.FromString(order.SerializeToString()), shop_pb2.Order)


async def calls(channel: grpc.aio.Channel) -> None:
    stub = shop_pb2_grpc.ShopStub(channel)
    request = shop_pb2.PriceRequest(item="apple", count=2, kind=shop_pb2.KIND_FRUIT, tags=["a"])
    assert_type(request.count, int)
    assert_type(request.item, str)
    assert_type(request.HasField("note"), bool)
    assert_type(request.rates["a"], float)
    assert_type(list(request.tags), list[str])
    reply = await stub.Price(request, timeout=1.0)
    assert_type(reply, shop_pb2.PriceReply)
    assert_type(reply.price, float)
    async for each in stub.Watch(request):
        assert_type(each, shop_pb2.PriceReply)
    assert_type(await stub.Total(iter([request])), shop_pb2.PriceReply)
    async for offer in stub.Haggle(iter([request])):
        assert_type(offer, shop_pb2.PriceReply)


def calls_of_threads(channel: grpc.Channel) -> None:
    stub = shop_pb2_grpc.ShopStub(channel)
    request = shop_pb2.PriceRequest(item="apple")
    assert_type(stub.Price(request), shop_pb2.PriceReply)
    for each in stub.Watch(request):
        assert_type(each, shop_pb2.PriceReply)


# --- the rest -------------------------------------------------------------------------------------


def build(scope: Any, receive: Any, send: Any) -> None: ...


@pyserve.deployment
@pyserve.ingress(build)
class Web(pyserve.Deployable):
    def __init__(self, predictor: DeploymentHandle[Predictor]) -> None:
        self.predictor = predictor


def rest() -> None:
    assert_type(Web.bind(Predictor.bind("m")), pyserve.Application[Web])
    assert_type(pyserve.get_replica_context().world_size, int)
    assert_type(pyserve.get_multiplexed_model_id(), str)
    assert_type(pyserve.__version__, str)
    pyserve.metrics.Counter("calls", description="d", tag_keys=("a",)).inc(1.0)
    pyserve.start(http_options={"port": 0}, grpc_options=pyserve.gRPCOptions(port=0))
    pyserve.shutdown()
