"""Does what a PerformRequest asks for, apart from waiting: replies, metadata, statuses, errors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import grpc

import pyserve
from pyserve.errors import NotInReplica
from services.echo import echo_pb2

INITIAL_PREFIX = "echo-initial-"
TRAILING_PREFIX = "echo-trailing-"
STATUS_DETAILS_KEY = "grpc-status-details-bin"

Metadata = tuple[tuple[str, str | bytes], ...]

_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True)
class Refusal:
    """The status with which a call is to end."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: Metadata


def with_prefix(metadata: Metadata, prefix: str) -> Metadata:
    """Return the pairs whose key begins with ``prefix``."""
    return tuple((key, value) for key, value in metadata if key.startswith(prefix))


def refusal(request: echo_pb2.PerformRequest, metadata: Metadata) -> Refusal | None:
    """Return how the request wants its call to be refused, if it does.

    Args:
        metadata: What the call came with; what comes back of it trails the status.

    Raises:
        RuntimeError: The request wants an exception.
    """
    if request.raise_text:
        raise RuntimeError(request.raise_text)
    if request.status.code == 0:
        return None
    trailing = with_prefix(metadata, TRAILING_PREFIX)
    code = _CODES.get(request.status.code)
    if code is None:
        text = f"status.code: {request.status.code} is no code of gRPC"
        return Refusal(grpc.StatusCode.INVALID_ARGUMENT, text, trailing)
    if request.status.details:
        trailing += ((STATUS_DETAILS_KEY, request.status.SerializeToString()),)
    return Refusal(code, request.status.message, trailing)


def reply(
    request: echo_pb2.PerformRequest,
    context: grpc.ServicerContext | grpc.aio.ServicerContext[object, object],
) -> echo_pb2.PerformReply:
    """Return the answer that the request wants, of a wrong type if it wants that."""
    if request.return_wrong_type:
        return echo_pb2.CountReply()  # type: ignore[return-value]  # what was asked for
    payload = bytes(request.response_bytes) if request.response_bytes else request.payload
    facts = _facts(context) if request.describe else None
    return echo_pb2.PerformReply(payload=payload, facts=facts)


def replica_id() -> str:
    """Return this replica's id, empty where no mesh runs this code."""
    try:
        return pyserve.get_replica_context().replica_id
    except NotInReplica:
        return ""


def invocation_metadata(
    context: grpc.ServicerContext | grpc.aio.ServicerContext[object, object],
) -> Metadata:
    """Return what the call came with as plain pairs."""
    pairs: Iterable[tuple[str, str | bytes]] = context.invocation_metadata() or ()
    return tuple((key, value) for key, value in pairs)


def _facts(
    context: grpc.ServicerContext | grpc.aio.ServicerContext[object, object],
) -> echo_pb2.CallFacts:
    facts = echo_pb2.CallFacts(replica_id=replica_id(), pid=os.getpid(), peer=context.peer())
    remaining_s = context.time_remaining()
    if remaining_s is not None:
        facts.time_remaining_s = remaining_s
    for key, value in invocation_metadata(context):
        raw = value if isinstance(value, bytes) else value.encode("ascii")
        facts.metadata.add(key=key, value=raw)
    return facts
