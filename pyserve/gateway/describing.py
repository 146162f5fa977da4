"""Asks replicas what they take by plain HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from pyserve import _router, aio
from pyserve.replica.describing import HTTP

if TYPE_CHECKING:
    from pyserve.types import DeploymentKey, ReplicaId

# FastAPI makes the document of a large application in a second.
_TIMEOUT_S = 5.0


async def document_of(
    table: _router.RoutingTable,
    key: DeploymentKey,
    replica_id: ReplicaId,
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, Any]:
    """Return what a deployment takes by plain HTTP, as a document of OpenAPI below its prefix.

    Raises:
        grpc.aio.AioRpcError: The replica is gone, does not answer in time, or of an earlier
            release.
    """
    native = _router.Channel(str(key), table=table)
    async with aio.Channel(native, replica_id=replica_id) as channel:
        call: Any = channel.unary_unary(HTTP)
        answer: bytes = await call(b"", timeout=timeout_s)
    found: dict[str, Any] = orjson.loads(answer)
    return found
