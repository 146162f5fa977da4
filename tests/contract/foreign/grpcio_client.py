"""grpcio: the client that Python programs use."""

import asyncio
import time
from collections.abc import AsyncIterable
from typing import Any

import grpc
import grpc.aio

from tests.contract.foreign.calls import KINDS, Call, Metadata, Outcome
from tests.contract.foreign.messages import REPLIES, REQUESTS, Answers, requests_of

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


class GrpcioClient:
    """``grpc.aio``'s channel with its multi-callables."""

    name = "grpcio"
    compresses = True

    async def perform(self, address: str, call: Call) -> Outcome:
        """See ``Client``."""
        started = time.monotonic()
        answers = Answers()
        compression = grpc.Compression.Gzip if call.compress else None
        async with grpc.aio.insecure_channel(address, _OPTIONS, compression) as channel:
            running = self._start(channel, call)
            await self._converse(running, call, answers)
            return Outcome(
                code=(await running.code()).value[0],
                message=await running.details() or "",
                payloads=tuple(answers.payloads),
                collected=answers.collected,
                seen_metadata=answers.seen_metadata,
                initial_metadata=_bytes(await running.initial_metadata()),
                trailing_metadata=_bytes(await running.trailing_metadata()),
                elapsed_s=time.monotonic() - started,
            )

    def _start(self, channel: grpc.aio.Channel, call: Call) -> Any:
        multi_callable = getattr(channel, KINDS.get(call.method, "unary_unary"))(
            f"/services.echo.Echo/{call.method}",
            request_serializer=REQUESTS.get(call.method, REQUESTS["Perform"]).SerializeToString,
            response_deserializer=getattr(REPLIES.get(call.method), "FromString", None),
        )
        metadata = tuple((k, v if k.endswith("-bin") else v.decode()) for k, v in call.metadata)
        takes_stream = KINDS.get(call.method, "").startswith("stream")
        arguments = () if takes_stream else (requests_of(call)[0],)
        return multi_callable(*arguments, timeout=call.timeout_s, metadata=metadata)

    async def _converse(self, running: Any, call: Call, answers: Answers) -> None:
        if call.cancel_after == 0:
            running.cancel()
        try:
            kind = KINDS.get(call.method, "unary_unary")
            if kind == "stream_stream":
                await self._ping_pong(running, call, answers)
                return
            if kind == "stream_unary":
                for request in requests_of(call):
                    await running.write(request)
                await running.done_writing()
            if kind.endswith("unary"):
                answers.add(await running)
            else:
                await self._read(running, call, answers)
        except (grpc.RpcError, asyncio.CancelledError):
            pass  # The call's code tells how it ended.

    async def _ping_pong(self, running: Any, call: Call, answers: Answers) -> None:
        for request in requests_of(call):
            await running.write(request)
            answers.add(await running.read())
            if len(answers.payloads) == call.cancel_after:
                running.cancel()
                return
        await running.done_writing()
        assert await running.read() == grpc.aio.EOF

    async def _read(self, replies: AsyncIterable[object], call: Call, answers: Answers) -> None:
        async for reply in replies:
            answers.add(reply)
            if len(answers.payloads) == call.cancel_after:
                replies.cancel()  # type: ignore[attr-defined]  # A call, which is iterable too.


def _bytes(metadata: Any) -> Metadata:
    return tuple(
        (key, value if isinstance(value, bytes) else value.encode()) for key, value in metadata
    )
