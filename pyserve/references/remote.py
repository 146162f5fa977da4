"""Values between machines: copied in chunks, over a call to the replica that holds them.

The calls are ordinary gRPC to one replica, so they cross whatever the replica's own calls cross;
they count nothing at its gate, because a replica that waits for a value must not wait for a place
at its producer. Only processes of the mesh may make them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.aio import payload
from pyserve.aio.internal import refuse_strangers
from pyserve.errors import ReferenceLost
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

if TYPE_CHECKING:
    from pyserve.references.process import References
    from pyserve.references.wire import Descriptor
    from pyserve.serializers import Buffer

SERVICE = "pyserve.references"
FETCH = f"/{SERVICE}/Fetch"
FORGET = f"/{SERVICE}/Forget"

WEIGHTS: Mapping[str, int] = {FETCH: 0, FORGET: 0}
"""Weights of the methods at the admission gate."""

# Below every default limit of a message, large enough that its own cost does not count.
CHUNK_BYTES = 1 << 20

_FORGET_TIMEOUT_S = 5.0  # the holder frees it by itself after a minute

ChannelOpener = Callable[[DeploymentKey, ReplicaId], grpc.aio.Channel]


class RemoteHolders:
    """The way to replicas on other machines; see ``pyserve.references.Remote``.

    Args:
        open_channel: Returns a channel to one replica of a deployment, in any thread. May block.
    """

    def __init__(self, open_channel: ChannelOpener) -> None:
        self._open_channel = open_channel

    async def fetch(self, descriptor: Descriptor) -> Buffer:
        """Copy a value to this process.

        Raises:
            ReferenceLost: It was freed, or its holder is gone.
        """
        received = 0
        try:
            async with await self._channel(descriptor) as channel:
                call: Any = channel.unary_stream(FETCH)
                body = bytearray(descriptor.size_bytes)
                async for chunk in call(descriptor.key.encode()):
                    body[received : received + len(chunk)] = chunk
                    received += len(chunk)
        except grpc.aio.AioRpcError as error:
            raise ReferenceLost(
                f"the value held by {descriptor.holder_id} of {descriptor.deployment} on "
                f"{descriptor.node} could not be fetched: {error.code().name}: {error.details()}"
            ) from error
        if received != descriptor.size_bytes:
            raise ReferenceLost(f"{received} bytes of a value of {descriptor.size_bytes} came")
        return memoryview(body).toreadonly()

    async def forget(self, descriptor: Descriptor) -> None:
        """Tell the holder that nobody will fetch the value any more."""
        async with await self._channel(descriptor) as channel:
            call: Any = channel.unary_unary(FORGET)
            await call(descriptor.key.encode(), timeout=_FORGET_TIMEOUT_S)

    async def _channel(self, descriptor: Descriptor) -> grpc.aio.Channel:
        key = DeploymentKey(
            ApplicationName(descriptor.application), DeploymentName(descriptor.deployment)
        )
        # The first channel of a process waits for the controller's view of the mesh.
        return await asyncio.to_thread(self._open_channel, key, ReplicaId(descriptor.holder_id))


def handlers(references: References) -> dict[str, Any]:
    """Return the method handlers of ``SERVICE`` for a holder's server."""

    async def fetch(key: bytes, context: Any) -> AsyncIterator[list[memoryview]]:
        await refuse_strangers(context)
        view = references.read(key.decode())
        if view is None:
            # Which raises.
            await context.abort(grpc.StatusCode.NOT_FOUND, "the value was freed by its holder")
            return
        body = memoryview(view)
        for start in range(0, body.nbytes, CHUNK_BYTES):
            yield [body[start : start + CHUNK_BYTES]]

    async def forget(key: bytes, context: Any) -> bytes:
        await refuse_strangers(context)
        references.forget(key.decode())
        return b""

    made: Any = grpc.unary_stream_rpc_method_handler
    return {
        "Fetch": made(fetch, response_serializer=payload),
        "Forget": grpc.unary_unary_rpc_method_handler(forget),
    }
