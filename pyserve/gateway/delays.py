"""Asks replicas what a call waited for in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from pyserve import _router, aio
from pyserve.replica.delays import OF

if TYPE_CHECKING:
    from pyserve.types import DeploymentKey, ReplicaId

# A replica whose loop stands still does not answer; whoever explains says so.
_TIMEOUT_S = 1.0


async def delays_of(
    table: _router.RoutingTable,
    key: DeploymentKey,
    replica_id: ReplicaId,
    request_id: str,
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, Any]:
    """Return what a request waited for in one replica, see ``pyserve.observe.delays.Delays.of``.

    Raises:
        grpc.aio.AioRpcError: The replica is gone, or does not answer in time.
    """
    native = _router.Channel(str(key), table=table)
    async with aio.Channel(native, replica_id=replica_id) as channel:
        call: Any = channel.unary_unary(OF)
        answer: bytes = await call(request_id.encode(), timeout=timeout_s)
    found: dict[str, Any] = orjson.loads(answer)
    return found
