"""A deployment whose constructor takes longer than anybody waits."""

import time

import pyserve
from services.echo import echo_pb2_grpc


@pyserve.deployment(startup_timeout_s=120.0)
class Slow(echo_pb2_grpc.EchoServicer):
    def __init__(self) -> None:
        time.sleep(600)


app = Slow.bind()
