"""One deployment whose replies say where and how they were made."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc


def _sleep_for_long() -> None:
    time.sleep(60)


@pyserve.deployment
class Small(echo_pb2_grpc.EchoServicer):
    def __init__(self, prefix: str = "", closing: str = "") -> None:
        self._prefix = prefix
        self._constructed_in = pyserve.get_replica_context().replica_id
        self._closing = closing

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        return echo_pb2.EchoReply(payload=self._prefix.encode() + request.payload)

    async def EchoStream(self, request: echo_pb2.StreamRequest) -> object:
        for _ in range(request.messages):
            yield echo_pb2.EchoReply(payload=request.payload)

    async def Perform(self, request: echo_pb2.PerformRequest) -> echo_pb2.PerformReply:
        if request.delay_s:
            # For tests that have to know that the call is here, not on its way.
            print(f"performs for {request.delay_s:g} s", flush=True)
            await asyncio.sleep(request.delay_s)
        facts = echo_pb2.CallFacts(
            replica_id=pyserve.get_replica_context().replica_id,
            pid=os.getpid(),
            metadata=[echo_pb2.Metadatum(key="constructor", value=self._constructed_in.encode())],
        )
        return echo_pb2.PerformReply(payload=request.payload, facts=facts)

    async def Collect(self, requests: object) -> echo_pb2.CollectReply:
        sizes = [len(request.payload) async for request in requests]  # type: ignore[attr-defined]
        return echo_pb2.CollectReply(messages=len(sizes), payload_bytes=sum(sizes))

    async def Fork(self, _request: echo_pb2.ForkRequest) -> echo_pb2.ForkReply:
        """Fork as a data loader does, and end the child by SIGTERM, as its owner would."""
        child = multiprocessing.get_context("fork").Process(target=_sleep_for_long)
        child.start()
        child.terminate()
        await asyncio.to_thread(child.join, 10)
        exit_code = child.exitcode
        assert exit_code is not None, "the child did not react to SIGTERM"
        return echo_pb2.ForkReply(runtime_error=signal.Signals(-exit_code).name)

    async def aclose(self) -> None:
        self._note("aclose")

    def __del__(self) -> None:
        # While the interpreter ends, a thread would never run.
        noting = threading.Thread(target=self._note, args=("__del__",))
        noting.start()
        noting.join()

    def _note(self, what: str) -> None:
        if self._closing:
            with Path(self._closing).open("a") as file:
                file.write(f"{what}\n")


app = Small.bind()
none = pyserve.Deployment(Small.target, Small.settings.updated({"num_replicas": 0})).bind()


def build(arguments: dict[str, str]) -> pyserve.Application:
    application: pyserve.Application = Small.options(name="Built").bind(arguments.get("prefix", ""))
    return application
