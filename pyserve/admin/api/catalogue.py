"""Everything callable through the ingress, as an OpenAPI document and as forms.

Replicas send the OpenAPI documents of plain HTTP. For one event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyserve.admin.api.methods import methods_of, operations_of
from pyserve.admin.api.openapi import Part, document_of
from pyserve.admin.context import Described, Front
from pyserve.admin.rate_limits import RateLimited
from pyserve.version import version

_REASON_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class Made:
    """A document and its forms, made at the same time.

    Attributes:
        document: Of OpenAPI 3.1.
        forms: One for each method and operation.
    """

    document: Mapping[str, Any]
    forms: Sequence[Mapping[str, Any]]


class Catalogue:
    """Makes both, once for all concurrent requests. For one event loop.

    Args:
        front: The ingress of this process.
        documents: The documents of its replicas.
    """

    def __init__(self, front: Front, documents: Documents) -> None:
        self._front = front
        self._documents = documents
        self._rate_limited = RateLimited(self._make)

    async def get(self) -> Made:
        """Return a result that was made after this call."""
        return await self._rate_limited.get()

    async def _make(self) -> Made:
        described = self._front.described()
        found = await asyncio.gather(*(self._parts_of(each) for each in described))
        self._documents.keep([each.target for each in described])
        parts = [part for each in found for part in each]
        # With hundreds of methods it would block the loop for too long.
        return await asyncio.to_thread(_made, self._url(), described, parts)

    def _url(self) -> str:
        door = self._front.door()
        if door is None:
            return ""
        return f"{'https' if door.speaks_tls else 'http'}://{door.address}"

    async def _parts_of(self, described: Described) -> list[Part]:
        if not described.prefixes:
            return []
        document, reason = await self._documents.of(described.target)
        return [
            Part(described.application, described.deployment, prefix, document, reason)
            for prefix in described.prefixes
        ]


def _made(url: str, described: Sequence[Described], parts: Sequence[Part]) -> Made:
    document = document_of(version(), url, described, [_sound(part) for part in parts])
    methods = methods_of(described)
    others = operations_of(document, {each["path"] for each in methods})
    return Made(document, [*methods, *others])


def _sound(part: Part) -> Part:
    """Return the part without its document if that document is malformed.

    The document comes from an application, and anything in it may have a wrong type; the common
    document must still work for the others.
    """
    if part.document is None:
        return part
    try:
        alone = document_of(version(), "", (), [part])
        forms = list(operations_of(alone))
        json.dumps((alone, forms), allow_nan=False)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"its document is not as OpenAPI has it: {type(error).__name__}: {error}"
        return replace(part, document=None, reason=reason[:_REASON_CHARACTERS_MAX])
    return part


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
