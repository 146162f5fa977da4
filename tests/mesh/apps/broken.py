"""Deployments that a mesh cannot bring up, each for one reason."""

import time

import pyserve
from services.echo import echo_pb2_grpc


@pyserve.deployment
class Misspelt(echo_pb2_grpc.EchoServicer):
    async def Perfrom(self, request: object, context: object) -> object: ...


@pyserve.deployment
class WrongKind(echo_pb2_grpc.EchoServicer):
    async def Echo(self, request: object, context: object) -> object:
        yield request


@pyserve.deployment
class WrongSignature(echo_pb2_grpc.EchoServicer):
    async def Echo(self) -> object: ...


@pyserve.deployment
class Raises(echo_pb2_grpc.EchoServicer):
    def __init__(self) -> None:
        raise FileNotFoundError("model.npz is not there")


@pyserve.deployment
class Exits(echo_pb2_grpc.EchoServicer):
    def __init__(self) -> None:
        raise SystemExit("nothing to serve")


@pyserve.deployment(startup_timeout_s=1.0)
class Hangs(echo_pb2_grpc.EchoServicer):
    def __init__(self) -> None:
        time.sleep(600)


@pyserve.deployment
class WarmupRaises(echo_pb2_grpc.EchoServicer):
    async def warmup(self) -> None:
        raise MemoryError("no room for the model")


def raises() -> pyserve.Application:
    raise LookupError("no such configuration")


number = 3
