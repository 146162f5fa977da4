"""``Ingresses`` on the wire: the streams of ingresses that are processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc

from pyserve.control.server.ingresses import Ingresses, RegisteredIngress
from pyserve.control.server.transport import Server, converse
from pyserve.wire.v1 import ingress_pb2, ingress_pb2_grpc

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[ingress_pb2.IngressMessage, ingress_pb2.IngressCommand]

# An ingress is unknown until its first status, which follows the call at once.
_FIRST_TIMEOUT_S = 30.0


def add_ingress_service(server: Server, ingresses: Ingresses) -> None:
    """Register the service; ``server`` is not started yet, and checks the mesh token."""
    ingress_pb2_grpc.add_IngressesServicer_to_server(IngressService(ingresses), server)


class IngressService(ingress_pb2_grpc.IngressesServicer):
    """What ingresses call."""

    def __init__(self, ingresses: Ingresses) -> None:
        self._ingresses = ingresses

    # The stub knows generators only; the library takes a handler that writes as well.
    async def Attend(  # type: ignore[override]
        self, request_iterator: AsyncIterator[ingress_pb2.IngressMessage], context: Context
    ) -> None:
        """Hold one ingress's stream: what it says in, commands out, until either side ends it."""
        first = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_TIMEOUT_S):
                first = await anext(aiter(request_iterator), None)
        if first is None or not (first.status.id and first.status.node):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "the first message of Attend must be a status with id and node",
            )
        registered = self._ingresses.attend(first.status)
        if first.status.addresses:
            _confirm(registered)
        try:
            await converse(context, registered.next, self._read(request_iterator, registered))
        finally:
            # Also when the reader failed: the ingress has left, whatever ended its messages.
            self._ingresses.leave(registered)

    async def _read(
        self, messages: AsyncIterator[ingress_pb2.IngressMessage], registered: RegisteredIngress
    ) -> None:
        try:
            async for message in messages:
                is_new = bool(message.status.addresses) and not registered.status.addresses
                self._ingresses.hear(registered, message)
                if is_new:
                    _confirm(registered)
        finally:
            registered.end()


def _confirm(registered: RegisteredIngress) -> None:
    # It has not said before this that it listens.
    registered.send(ingress_pb2.IngressCommand(look=ingress_pb2.Look()))
