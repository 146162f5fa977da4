"""``/api``: the mesh as JSON, for the page, ``pyserve top`` and ``pyserve explain``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.routing import Route

from pyserve.admin.api.counted import read_families
from pyserve.admin.api.look import Look
from pyserve.admin.api.resources import Api
from pyserve.admin.api.sampler import Sampler
from pyserve.admin.desk import Desk, Front
from pyserve.errors import MeshUnavailable
from pyserve.wire.v1 import control_pb2

_SILENT = "pyserve_scrape_processes"


def routes(desk: Desk) -> list[Route]:
    """Return the routes; without an ingress and a mesh to ask there are none."""
    if desk.status is None or desk.front is None:
        return []
    looker = _Looker(desk, desk.status, desk.front)
    return Api(Sampler(looker.take), desk.front, tries=desk.tries).routes()


class _Looker:
    """Takes looks: asks the controller how the mesh is, and this node what it has counted."""

    def __init__(
        self, desk: Desk, status: Callable[[], Awaitable[control_pb2.StatusReply]], front: Front
    ) -> None:
        self._desk = desk
        self._status = status
        self._front = front

    async def take(self) -> Look:
        """Take a look.

        Raises:
            MeshUnavailable: The controller does not answer.
        """
        try:
            status = await self._status()
        except ConnectionError as error:
            raise MeshUnavailable(str(error)) from error
        families = await self._desk.gathering.gather()
        silent = sum(
            sample.value
            for family in families
            if family.name == _SILENT
            for sample in family.samples
            if sample.labels["state"] == "silent"
        )
        words = f"{silent:.0f} processes of this node did not say what they have counted"
        counted = read_families(families)
        return Look(
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
