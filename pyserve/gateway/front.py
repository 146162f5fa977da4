"""What the admin server of a process asks its ingress; see ``pyserve.admin.context.Front``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from pyserve import aio
from pyserve.admin import Described, Door
from pyserve.admin.calls.store import CallStore
from pyserve.aio import AioRpcError
from pyserve.bridge import rust
from pyserve.replica.mesh_methods import DELAYS_OF, DESCRIBING_HTTP
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

if TYPE_CHECKING:
    from pyserve.gateway.ingress import IngressServer


class IngressFront:
    """One ingress, as others of its process see it. For its event loop.

    Args:
        ingress: Which one.
    """

    def __init__(self, ingress: IngressServer) -> None:
        self._ingress = ingress
        self._calls = CallStore()
        # From the start: others take records too, whether or not somebody has looked at calls.
        ingress.records.listen(self._calls.add, is_lazy=True)

    def described(self) -> Sequence[Described]:
        """Return what is deployed, with descriptors."""
        return [
            Described(
                key.application,
                key.deployment,
                tuple(view.services),
                tuple(view.file_descriptors),
                # Those of its class are of inference, whose interface is a standard.
                tuple(each for each in view.http_prefixes if each not in view.class_prefixes),
            )
            for key, view in self._ingress.views.items()
        ]

    def door(self) -> Door | None:
        """Return where it listens; ``None``: nowhere, or not yet."""
        addresses = self._ingress.addresses
        return Door(addresses[0], self._ingress.speaks_tls) if addresses else None

    def models(self) -> Mapping[str, tuple[str, ...]]:
        """Return the models that replicas have, by their ids."""
        return {
            replica_id: tuple(models)
            for key in self._ingress.views
            for replica_id, _, models in self._ingress.table.replicas(str(key))
            if models
        }

    def replicas_of(self, target: str) -> Sequence[str]:
        """Return ids of the replicas of "application/Deployment"."""
        if _key(target) not in self._ingress.views:
            return ()
        return [replica_id for replica_id, _, _ in self._ingress.table.replicas(target)]

    def kept_calls(self) -> CallStore:
        """Return what is kept of finished calls, since the ingress is there."""
        return self._calls

    def take_calls(self) -> None:
        """Take the records that wait."""
        self._ingress.records.take_now()

    async def delays_of(self, target: str, replica_id: str, request_id: str) -> Mapping[str, Any]:
        """Ask a replica what a call waited for there.

        Raises:
            ConnectionError: It does not say.
        """
        key = _key(target)
        table = self._ingress.table_of(key)
        try:
            return await delays_of(table, key, ReplicaId(replica_id), request_id)
        except AioRpcError as error:
            raise ConnectionError(_said(error)) from error

    async def document_of(self, target: str, replica_id: str) -> Mapping[str, Any]:
        """Ask a replica what its deployment takes by plain HTTP.

        Raises:
            ConnectionError: It does not say.
        """
        key = _key(target)
        table = self._ingress.table_of(key)
        try:
            return await document_of(table, key, ReplicaId(replica_id))
        except AioRpcError as error:
            raise ConnectionError(_said(error)) from error


def _said(error: AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"


def _key(target: str) -> DeploymentKey:
    application, _, deployment = target.partition("/")
    return DeploymentKey(ApplicationName(application), DeploymentName(deployment))


# Asks replicas, inside the mesh, what only they know.

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
    return await _ask(table, key, replica_id, DELAYS_OF, request_id.encode(), timeout_s)


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
    return await _ask(table, key, replica_id, DESCRIBING_HTTP, b"", timeout_s)


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
