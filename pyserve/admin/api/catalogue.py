"""All that can be called through the ingress: as a document of OpenAPI, and as forms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyserve.admin.api.methods import methods_of
from pyserve.admin.api.openapi import Part, document_of
from pyserve.admin.api.operations import operations_of
from pyserve.admin.desk import Described, Front
from pyserve.admin.rationing import Rationed
from pyserve.version import version

# Of those that are there: one that hangs must not hide what another one says.
_ASKED_MAX = 2


@dataclass(frozen=True, slots=True)
class Made:
    """What was made at one moment.

    Attributes:
        document: Of OpenAPI 3.1.
        forms: One for each method and operation.
    """

    document: Mapping[str, Any]
    forms: Sequence[Mapping[str, Any]]


class Catalogue:
    """Makes both, for all who ask together. For one event loop.

    Args:
        front: The ingress of this process, whose replicas are asked.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self._rationed = Rationed(self._make)
        # By "application/Deployment": who said it, and what.
        self._known: dict[str, tuple[str, Mapping[str, Any]]] = {}

    async def get(self) -> Made:
        """Return what was made after this call."""
        return await self._rationed.get()

    async def _make(self) -> Made:
        described = self._front.described()
        found = await asyncio.gather(*(self._parts_of(each) for each in described))
        self._known = {
            each.target: self._known[each.target]
            for each in described
            if each.target in self._known
        }
        parts = [part for each in found for part in each]
        # With hundreds of methods it would hold up the loop, which has other things to do.
        return await asyncio.to_thread(_made, self._url(), described, parts)

    def _url(self) -> str:
        door = self._front.door()
        if door is None:
            return ""
        return f"{'https' if door.speaks_tls else 'http'}://{door.address}"

    async def _parts_of(self, described: Described) -> list[Part]:
        if not described.prefixes:
            return []
        document, reason = await self._document_of(described.target)
        return [
            Part(described.application, described.deployment, prefix, document, reason)
            for prefix in described.prefixes
        ]

    async def _document_of(self, target: str) -> tuple[Mapping[str, Any] | None, str]:
        """Ask replicas, unless one that has said it is still there."""
        replicas = self._front.replicas_of(target)
        said_by, document = self._known.get(target, ("", None))
        if said_by in replicas or (document is not None and not replicas):
            return document, ""
        reason = "it has no replica to ask"
        for replica_id in replicas[:_ASKED_MAX]:
            try:
                document = await self._front.document_of(target, replica_id)
            except ConnectionError as error:
                reason = f"{replica_id} does not say: {error}"
                continue
            self._known[target] = (replica_id, document)
            return document, ""
        return None, reason


def _made(url: str, described: Sequence[Described], parts: Sequence[Part]) -> Made:
    document = document_of(version(), url, described, parts)
    methods = methods_of(described)
    others = operations_of(document, {each["path"] for each in methods})
    return Made(document, [*methods, *others])
