"""The calls of a soak: answered, cancelled at any moment, or too slow for their deadline."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from benchmarks.ledger import CallId, Kind, Ledger
from services.echo import echo_pb2, echo_pb2_grpc

# No call may take this long; one that does counts as never answered.
_PATIENCE_S = 30.0
_CANCEL_AFTER_S_MAX = 0.01
_STREAM_MESSAGES = 5

ECHO = Kind("echo", frozenset({"OK"}))
STREAM = Kind("stream", frozenset({"OK"}))
# grpcio gives a call whose write fails a status of its own, INTERNAL, when the failure comes before
# the server's status.
CONVERSATION = Kind("conversation", frozenset({"OK"}), frozenset({"UNAVAILABLE", "INTERNAL"}))
# The answer may be faster than the cancel, and the handler than the deadline.
CANCELLED = Kind("cancelled call", frozenset({"OK", "CANCELLED"}))
CANCELLED_STREAM = Kind("cancelled stream", frozenset({"OK", "CANCELLED"}))
# A router refuses one that would wait for most of its time, RESOURCE_EXHAUSTED; calls wait when a
# replica is killed.
LATE = Kind(
    "call with a short deadline",
    frozenset({"OK", "DEADLINE_EXCEEDED"}),
    frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"}),
)


@dataclass(frozen=True)
class Caller:
    """Makes calls of every kind and enters them into a ledger.

    Attributes:
        stub: Of services/echo, on a channel with grpc.aio's interface.
        ledger: Takes every begin and end.
        random: Seeded: decides what is called and when it is cancelled.
    """

    stub: echo_pb2_grpc.EchoAsyncStub
    ledger: Ledger
    random: random.Random

    async def call_once(self) -> None:
        """Make one call of a random kind and see it to its end."""
        shares: Sequence[tuple[Callable[[], Awaitable[None]], int]] = (
            (self._echo, 60),
            (self._cancelled_call, 15),
            (self._late, 10),
            (self._stream, 7),
            (self._cancelled_stream, 5),
            (self._conversation, 3),
        )
        ((make, _),) = self.random.choices(shares, weights=[weight for _, weight in shares])
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await make()
        except TimeoutError:
            # The ledger has it open still, and finds it there in the end.
            return

    async def _echo(self) -> None:
        opened = self._open(ECHO)
        method = self.random.choice((self.stub.Echo, self.stub.EchoSuspend))
        call = method(echo_pb2.EchoRequest(payload=opened.payload), timeout=_PATIENCE_S)
        if await opened.end_of(call) == "OK" and (await call).payload != opened.payload:
            self.ledger.wrong("echo with a payload of another call")

    async def _cancelled_call(self) -> None:
        opened = self._open(CANCELLED)
        request = echo_pb2.PerformRequest(payload=opened.payload, delay_s=self._moment_s())
        call = self.stub.Perform(request, timeout=_PATIENCE_S)
        await self._cancel_some_time(call)
        if await opened.end_of(call) == "OK" and (await call).payload != opened.payload:
            self.ledger.wrong("cancelled call with a payload of another call")

    async def _late(self) -> None:
        opened = self._open(LATE)
        request = echo_pb2.PerformRequest(payload=opened.payload, delay_s=2 * self._moment_s())
        await opened.end_of(self.stub.Perform(request, timeout=self._moment_s()))

    async def _stream(self) -> None:
        opened = self._open(STREAM)
        request = echo_pb2.StreamRequest(payload=opened.payload, messages=_STREAM_MESSAGES)
        await self._read_stream(opened, self.stub.EchoStream(request, timeout=_PATIENCE_S))

    async def _cancelled_stream(self) -> None:
        opened = self._open(CANCELLED_STREAM)
        each = echo_pb2.PerformRequest(payload=opened.payload, delay_s=self._moment_s())
        request = echo_pb2.PerformStreamRequest(messages=_STREAM_MESSAGES, each=each)
        call = self.stub.PerformStream(request, timeout=_PATIENCE_S)
        await self._cancel_some_time(call)
        await opened.end_of(call)

    async def _conversation(self) -> None:
        opened = self._open(CONVERSATION)

        async def requests() -> AsyncIterator[echo_pb2.PerformRequest]:
            for _ in range(_STREAM_MESSAGES):
                yield echo_pb2.PerformRequest(payload=opened.payload)

        await self._read_stream(opened, self.stub.Converse(requests(), timeout=_PATIENCE_S))

    async def _read_stream(self, opened: _OpenCall, call: Any) -> None:
        payloads = []
        # Its status says how the stream ended.
        with contextlib.suppress(grpc.aio.AioRpcError):
            payloads += [reply.payload async for reply in call]
        if await opened.end_of(call) == "OK" and payloads != [opened.payload] * _STREAM_MESSAGES:
            self.ledger.wrong("stream with other messages than its own")

    def _open(self, kind: Kind) -> _OpenCall:
        return _OpenCall(self.ledger, self.ledger.begin(kind, time.monotonic()))

    async def _cancel_some_time(self, call: grpc.aio.Call) -> None:
        # A fifth is cancelled before a byte can have left.
        if self.random.random() > 0.2:
            await asyncio.sleep(self._moment_s())
        call.cancel()

    def _moment_s(self) -> float:
        return self.random.uniform(0.0005, _CANCEL_AFTER_S_MAX)


@dataclass(frozen=True)
class _OpenCall:
    ledger: Ledger
    call_id: CallId

    @property
    def payload(self) -> bytes:
        """What the answer has to bring back: no two calls send the same."""
        return self.call_id.number.to_bytes(8, "big")

    async def end_of(self, call: grpc.aio.Call) -> str:
        """Wait for the end of a call, enter it, and return the name of its status.

        The done callback must come, and the ledger notices when it comes twice.
        """
        done = asyncio.Event()

        def on_done(_: object) -> None:
            if done.is_set():
                self.ledger.wrong("answered twice")
            done.set()

        call.add_done_callback(on_done)
        status = (await call.code()).name
        await done.wait()
        self.ledger.end(self.call_id, status, time.monotonic(), await call.details() or "")
        return status
