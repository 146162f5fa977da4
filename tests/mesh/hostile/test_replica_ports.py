"""The ports of replicas, for clients that are not members of the mesh."""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import threading
import time
from typing import Self

import grpc
import pytest

from benchmarks.hostile.http2 import Kind, frame, greeting
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.calls.mesh import ANSWER_TIMEOUT_S, echo_mesh
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
# More than a replica holds of those who prove nothing.
_CROWD = 300
# Frames that are cheap to send: pings have to be answered, settings acknowledged.
FLOODS = [
    pytest.param(frame(Kind.PING, 0, 0, bytes(8)) * 1000, id="pings"),
    pytest.param(frame(Kind.SETTINGS, 0, 0) * 1000, id="settings"),
]
_FLOODERS = 50
_CALLS = 20
# Without a bound it was half a second with pings, and more than two with settings; the machine may
# be busy.
_MEDIAN_S_MAX = 0.2
_DESCRIBE = echo_pb2.PerformRequest(describe=True)


async def test_a_replica_answers_nobody_without_the_token() -> None:
    async with echo_mesh() as mesh:
        (replica,) = mesh.replicas()
        async with mesh.channel_to(replica) as channel:
            refusals = set()
            for path in ("/services.echo.Echo/Perform", "/services.echo.Echo/None", "/a.B/C"):
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(b"", timeout=ANSWER_TIMEOUT_S)
                assert grpc.StatusCode.UNAUTHENTICATED is refused.value.code()
                refusals.add(refused.value.details())
            assert 1 == len(refusals), "what is there is not told"

            direct = echo_pb2_grpc.EchoStub(channel)
            reply = await direct.Perform(_DESCRIBE, timeout=ANSWER_TIMEOUT_S, metadata=mesh.proof)
            assert replica.pid == reply.facts.pid


@pytest.mark.alone
@pytest.mark.parametrize("flood", FLOODS)
async def test_floods_of_strangers_hold_up_no_call(flood: bytes) -> None:
    """What they send is left in their sockets; the bound is far above what a call takes."""
    async with echo_mesh() as mesh:
        (replica,) = mesh.replicas()
        host, _, port = replica.address.rpartition(":")
        with Flood((host, int(port)), flood, _FLOODERS) as flooding:
            await eventually(lambda: flooding.sent_bytes > _FLOODERS * len(flood))
            times = []
            for _ in range(_CALLS):
                begun = time.perf_counter()
                await mesh.stub.Perform(_DESCRIBE, timeout=ANSWER_TIMEOUT_S)
                times.append(time.perf_counter() - begun)
    assert statistics.median(times) <= _MEDIAN_S_MAX, times


class Flood:
    """Sends the same bytes on many connections for as long as they are taken.

    Attributes:
        sent_bytes: By all of them.
    """

    def __init__(self, place: tuple[str, int], piece: bytes, connections: int) -> None:
        self.sent_bytes = 0
        self._piece = piece
        self._ended = threading.Event()
        self._sockets = [
            socket.create_connection(place, timeout=ANSWER_TIMEOUT_S) for _ in range(connections)
        ]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _run(self) -> None:
        unsent = dict.fromkeys(self._sockets, greeting())
        with selectors.DefaultSelector() as selector:
            for each in unsent:
                each.setblocking(False)
                selector.register(each, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
            while not self._ended.is_set():
                for key, events in selector.select(0.1):
                    connection: socket.socket = key.data
                    with contextlib.suppress(BlockingIOError):
                        if events & selectors.EVENT_READ:
                            connection.recv(1 << 20)
                        if events & selectors.EVENT_WRITE:
                            piece = unsent[connection] or self._piece
                            sent_bytes = connection.send(piece)
                            unsent[connection] = piece[sent_bytes:]
                            self.sent_bytes += sent_bytes


async def test_a_crowd_that_proves_nothing_takes_few_descriptors_of_a_replica() -> None:
    async with echo_mesh() as mesh:
        (replica,) = mesh.replicas()
        host, _, port = replica.address.rpartition(":")
        crowd = [
            socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S)
            for _ in range(_CROWD)
        ]
        try:
            # The server's settings, and then the end: the timeout bounds it.
            while crowd[0].recv(1024):
                pass
            reply = await mesh.stub.Perform(_DESCRIBE, timeout=ANSWER_TIMEOUT_S)
            assert replica.pid == reply.facts.pid
        finally:
            for each in crowd:
                each.close()
