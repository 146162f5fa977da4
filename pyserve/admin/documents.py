"""The deployments' OpenAPI documents of plain HTTP, from replicas. For one event loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyserve.admin.context import Front

# Of those that are there: one that hangs must not hide what another one says.
_ASKED_MAX = 2


class Documents:
    """OpenAPI documents, each kept while the replica that sent it lives.

    Args:
        front: The ingress of this process, whose replicas are asked.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        # By "application/Deployment": who said it, and what.
        self._known: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def keep(self, targets: Collection[str]) -> None:
        """Forget the documents of deployments that have gone."""
        self._known = {each: self._known[each] for each in targets if each in self._known}

    async def of(self, target: str) -> tuple[Mapping[str, Any] | None, str]:
        """Return the document of "application/Deployment", and why there is none.

        Replicas are asked, unless the one that sent the document is still there.
        """
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
