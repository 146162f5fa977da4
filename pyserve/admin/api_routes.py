"""``/api``: the mesh as JSON, for the page, ``pyserve top`` and ``pyserve explain``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.routing import Route

from pyserve.admin.api.counted import read_families
from pyserve.admin.api.resources import Api
from pyserve.admin.api.sampler import Sampler
from pyserve.admin.api.snapshot import MeshSnapshot
from pyserve.admin.context import AdminContext, Front
from pyserve.errors import MeshUnavailable
from pyserve.wire.v1 import control_pb2

_SILENT = "pyserve_scrape_processes"


def routes(admin_context: AdminContext) -> list[Route]:
    """Return the routes; none without an ingress and a mesh to ask."""
    if admin_context.status is None or admin_context.front is None:
        return []
    source = _SnapshotSource(admin_context, admin_context.status, admin_context.front)
    return Api(Sampler(source.take), admin_context.front, tries=admin_context.tries).routes()


class _SnapshotSource:
    """Takes snapshots: asks the controller for its status, and this node for its counts."""

    def __init__(
        self,
        admin_context: AdminContext,
        status: Callable[[], Awaitable[control_pb2.StatusReply]],
        front: Front,
    ) -> None:
        self._admin_context = admin_context
        self._status = status
        self._front = front

    async def take(self) -> MeshSnapshot:
        """Take a snapshot.

        Raises:
            MeshUnavailable: The controller does not answer.
        """
        try:
            status = await self._status()
        except ConnectionError as error:
            raise MeshUnavailable(str(error)) from error
        families = await self._admin_context.gathering.gather()
        silent = sum(
            sample.value
            for family in families
            if family.name == _SILENT
            for sample in family.samples
            if sample.labels["state"] == "silent"
        )
        words = f"{silent:.0f} processes of this node did not say what they have counted"
        counted = read_families(families)
        return MeshSnapshot(
            at_s=time.monotonic(),
            unix_s=time.time(),
            status=status,
            edges=counted.edges,
            ends=counted.ends,
            methods=counted.methods,
            batches=counted.batches,
            models=self._front.models(),
            caches=counted.caches,
            missing=(words,) if silent else (),
        )
