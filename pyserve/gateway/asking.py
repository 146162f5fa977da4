"""Asks replicas, inside the mesh, what only they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from pyserve import aio
from pyserve.bridge import rust
from pyserve.replica.delays import OF
from pyserve.replica.describing import HTTP

if TYPE_CHECKING:
    from pyserve.types import DeploymentKey, ReplicaId

# A replica whose loop is blocked does not answer, and the explanation then says so.
_DELAYS_TIMEOUT_S = 1.0
# FastAPI makes the document of a large application in a second.
_DOCUMENT_TIMEOUT_S = 5.0


async def delays_of(
    table: rust.RoutingTable,
    key: DeploymentKey,
    replica_id: ReplicaId,
    request_id: str,
    timeout_s: float = _DELAYS_TIMEOUT_S,
) -> dict[str, Any]:
    """Return what a request waited for in one replica, see ``pyserve.observe.delays.Delays.of``.

    Raises:
        grpc.aio.AioRpcError: The replica is gone, or does not answer in time.
    """
    return await _ask(table, key, replica_id, OF, request_id.encode(), timeout_s)


async def document_of(
    table: rust.RoutingTable,
    key: DeploymentKey,
    replica_id: ReplicaId,
    timeout_s: float = _DOCUMENT_TIMEOUT_S,
) -> dict[str, Any]:
    """Return what a deployment takes by plain HTTP, as a document of OpenAPI below its prefix.

    Raises:
        grpc.aio.AioRpcError: The replica is gone, does not answer in time, or of an earlier
            release.
    """
    return await _ask(table, key, replica_id, HTTP, b"", timeout_s)


async def _ask(
    table: rust.RoutingTable,
    key: DeploymentKey,
    replica_id: ReplicaId,
    method: str,
    request: bytes,
    timeout_s: float,
) -> dict[str, Any]:
    native = rust.Channel(str(key), table=table)
    async with aio.Channel(native, replica_id=replica_id) as channel:
        call: Any = channel.unary_unary(method)
        answer: bytes = await call(request, timeout=timeout_s)
    found: dict[str, Any] = orjson.loads(answer)
    return found
