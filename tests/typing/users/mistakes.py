"""Mistakes of users: both checkers find one on each line that ends with the mark, and no other."""

from collections.abc import AsyncIterator
from typing import Literal

import shop_pb2
import shop_pb2_grpc

import pyserve
from pyserve.handle import DeploymentHandle


@pyserve.deployment(num_replicas=2)
class Predictor(pyserve.Deployable):
    def __init__(self, path: str, size: int = 3) -> None:
        self.path = path
        self.size = size

    async def __call__(self, text: str) -> int:
        return len(text) * self.size

    async def predict(self, number: int, *, unit: str = "") -> str:
        return f"{number}{unit}"

    async def tokens(self, count: int) -> AsyncIterator[float]:
        for number in range(count):
            yield float(number)


class Plain:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, text: str) -> list[str]:
        return [text] * self.size


class Silent:
    """Has no __call__."""


class Front:
    def __init__(self, predictor: DeploymentHandle[Predictor], count: int = 1) -> None:
        self.predictor = predictor


@pyserve.deployment
async def double(number: int) -> int:
    return 2 * number


plain = pyserve.deployment(Plain)
front = pyserve.deployment(Front)


def arguments() -> None:
    Predictor.bind()  # E
    Predictor.bind(3)  # E
    Predictor.bind("m", "3")  # E
    Predictor.bind("m", sise=3)  # E
    Predictor.options(num_replicas=2).bind(3)  # E
    plain.bind("3")  # E
    plain.bind(3, 4)  # E
    plain.options(num_replicas=2).bind()  # E
    pyserve.deployment(num_replicas=2)(Plain).bind("3")  # E
    front.bind(plain.bind(3))  # E
    front.bind(Predictor)  # E
    front.bind(Predictor.bind("m"), count="1")  # E
    double.bind(3)  # E


def options() -> None:
    pyserve.deployment(num_replica=2)  # E
    pyserve.deployment(num_replicas="many")  # E
    pyserve.deployment(Plain, max_ongoing_requests="3")  # E
    Predictor.options(num_replicas=2.5)  # E
    plain.options(health_check_period="1")  # E
    plain.options(env_vars={"A": 1})  # E
    plain.options(autoscaling_config=4)  # E
    plain.options(serializer=None)  # E
    pyserve.config.AutoscalingConfig(max_replicas="4")  # E
    pyserve.config.AutoscalingConfig(max_replica=4)  # E
    pyserve.batch(max_batch_size="8")  # E
    pyserve.batch(max_batch=8)  # E
    pyserve.multiplexed(max_models=8)  # E
    pyserve.method(idempotent=1.5)  # E
    pyserve.start(http_option={})  # E


def running() -> None:
    pyserve.run(Predictor)  # E
    pyserve.run(plain)  # E
    pyserve.run(plain.bind(3), name=3)  # E
    pyserve.run(plain.bind(3), route_prefixes="/")  # E
    pyserve.deploymnt(Plain)  # E
    pyserve.Abort("NOT_FOUND")  # E
    pyserve.ingress.feed  # E


def handles(handle: DeploymentHandle[Predictor], silent: DeploymentHandle[Silent]) -> None:
    handle.remote()  # E
    handle.remote(3)  # E
    handle.remote("text", 3)  # E
    handle.remote("text").result("1")  # E
    handle("text")  # E
    number: str = handle.remote("text").result()  # E
    handle[Predictor.predict].remote("3")  # E
    handle[Predictor.predict].remote(3, unit=3)  # E
    handle[Predictor.predict].remote(3, units="m")  # E
    handle[Predictor.predict].remote(3).result().imag  # E
    handle[Predictor.predikt]  # E
    handle[Plain.__call__]  # E
    handle[Predictor.tokens].remote("3")  # E
    handle[Predictor.tokens].remote(3).result()  # E
    handle.options(streaming=True)  # E
    handle.options(timeout_s="1")  # E
    silent.remote("text")  # E
    pyserve.run(double.bind()).remote("3")  # E
    pyserve.run(double.bind()).remote(3).result().upper()  # E
    plain.bind(3).remote("text")  # E


async def awaited(handle: DeploymentHandle[Predictor]) -> None:
    text: str = await handle.remote("text")  # E
    items: list[str] = [item async for item in handle[Predictor.tokens].remote(3)]  # E
    async for item in handle.remote("text"):  # E
        print(item)


async def batches() -> None:
    @pyserve.batch
    async def doubled(numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]

    text: str = await doubled(3)  # E

    @pyserve.batch  # E
    async def halved(numbers: list[int]) -> float:
        return sum(numbers) / 2


async def services(stub: shop_pb2_grpc.ShopAsyncStub) -> None:
    shop_pb2.PriceRequest(itm="apple")  # E
    shop_pb2.PriceRequest(count="2")  # E
    shop_pb2.PriceRequest().cuont  # E
    shop_pb2.PriceRequest(tags=3)  # E
    await stub.Price(shop_pb2.PriceReply())  # E
    stub.Prise(shop_pb2.PriceRequest())  # E
    reply: str = await stub.Price(shop_pb2.PriceRequest())  # E


def messages(order: shop_pb2.Order) -> None:
    order.place = shop_pb2.Order.Place()  # E
    order.list = [shop_pb2.PriceRequest()]  # E
    order.note = 3  # E
    order.HasField("plaec")  # E
    order.HasField("note")  # E
    order.ClearField("notes")  # E
    order.WhichOneof("paymnt")  # E
    order.list.append(shop_pb2.PriceReply())  # E
    shop_pb2.Order("text")  # E
    shop_pb2.PriceRequest(kind=7)  # E
    by_card: Literal["card"] | None = order.WhichOneof("payment")  # E


class Prices(shop_pb2_grpc.ShopServicer):
    async def Price(self, request: str, context: object) -> shop_pb2.PriceReply:  # E
        return shop_pb2.PriceReply()

    @pyserve.batch
    async def Total(self, requests: list[shop_pb2.PriceRequest]) -> list[shop_pb2.PriceReply]:
        return [shop_pb2.PriceReply(prise=1.0)]  # E
