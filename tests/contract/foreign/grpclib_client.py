"""grpclib: pure Python on the h2 package, no code of grpcio's core."""

import time
from typing import Any

from grpclib.client import (
    Channel,
    ServiceMethod,
    StreamStreamMethod,
    StreamUnaryMethod,
    UnaryStreamMethod,
    UnaryUnaryMethod,
)
from grpclib.config import Configuration
from grpclib.exceptions import GRPCError, StreamTerminatedError

from tests.contract.foreign.calls import KINDS, Call, Metadata, Outcome
from tests.contract.foreign.messages import REPLIES, REQUESTS, Answers, requests_of

_METHODS: dict[str, type[ServiceMethod[Any, Any]]] = {
    "unary_unary": UnaryUnaryMethod,
    "unary_stream": UnaryStreamMethod,
    "stream_unary": StreamUnaryMethod,
    "stream_stream": StreamStreamMethod,
}


class GrpclibClient:
    """grpclib's streams. It knows no compression, so it must never be sent any."""

    name = "grpclib"
    compresses = False

    async def perform(self, address: str, call: Call) -> Outcome:
        """See ``Client``."""
        started = time.monotonic()
        answers = Answers()
        host, _, port = address.rpartition(":")
        channel = Channel(host, int(port), config=Configuration())
        method = _METHODS[KINDS.get(call.method, "unary_unary")](
            channel,
            f"/services.echo.Echo/{call.method}",
            REQUESTS.get(call.method, REQUESTS["Perform"]),
            REPLIES.get(call.method, REPLIES["Perform"]),
        )
        metadata = [(k, v if k.endswith("-bin") else v.decode()) for k, v in call.metadata]
        stream = method.open(timeout=call.timeout_s, metadata=metadata)
        try:
            code, message = await _outcome(stream, call, answers)
        finally:
            channel.close()
        return Outcome(
            code=code,
            message=message,
            payloads=tuple(answers.payloads),
            collected=answers.collected,
            seen_metadata=answers.seen_metadata,
            initial_metadata=_bytes(stream.initial_metadata),
            trailing_metadata=_bytes(stream.trailing_metadata),
            elapsed_s=time.monotonic() - started,
        )


async def _outcome(stream: Any, call: Call, answers: Answers) -> tuple[int, str]:
    try:
        async with stream:
            await _converse(stream, call, answers)
    except GRPCError as error:
        return error.status.value, error.message or ""
    except TimeoutError:
        return 4, ""
    except StreamTerminatedError:
        return (1, "") if call.cancel_after is not None else (14, "")
    return (1, "") if call.cancel_after is not None else (0, "")


async def _converse(stream: Any, call: Call, answers: Answers) -> None:
    requests = requests_of(call)
    for index, request in enumerate(requests):
        await stream.send_message(request, end=index == len(requests) - 1)
        if call.method == "Converse":
            answers.add(await stream.recv_message())
    if call.cancel_after == 0:
        await stream.cancel()
        return
    if len(answers.payloads) == call.cancel_after:
        await stream.cancel()
        return
    while (reply := await stream.recv_message()) is not None:
        answers.add(reply)
        if len(answers.payloads) == call.cancel_after:
            await stream.cancel()
            return
    await stream.recv_trailing_metadata()


def _bytes(metadata: Any) -> Metadata:
    return tuple(
        (key, value if isinstance(value, bytes) else value.encode())
        for key, value in (metadata.items() if metadata else ())
    )
