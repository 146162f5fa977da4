"""Finds the route of a web application for a call, from its deployment's OpenAPI document."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyserve.admin.calls.records import Call
    from pyserve.admin.documents import Documents

# A look at calls does not wait for a replica that hangs. Arbitrary.
_TIMEOUT_S = 1.0
_PARAMETER = re.compile(r"\{[^{}]*\}")
_VERBS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})


@dataclass(frozen=True, slots=True)
class _Template:
    verb: str
    path: str
    segments: re.Pattern[str]
    # Whose last parameter may hold slashes: a document does not say which do.
    rest: re.Pattern[str]


class Routes:
    """Names calls of plain HTTP by their routes: ``GET /shop/items/{id}``.

    Args:
        documents: The deployments' OpenAPI documents.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._read: dict[str, tuple[Mapping[str, Any], Sequence[_Template]]] = {}

    async def named(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls with their routes as methods, where these are known."""
        targets = sorted({call.target for call in calls if call.path and call.target})
        found = await asyncio.gather(*map(self._templates_of, targets))
        by_target = dict(zip(targets, found, strict=True))
        self._read = {each: self._read[each] for each in targets if each in self._read}
        return [_named(call, by_target.get(call.target, ())) for call in calls]

    async def _templates_of(self, target: str) -> Sequence[_Template]:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                document, _ = await self._documents.of(target)
        except TimeoutError:
            return ()
        if document is None:
            return ()
        known, templates = self._read.get(target, (None, ()))
        if known is not document:
            templates = tuple(_templates(document))
            self._read[target] = (document, templates)
        return templates


def _named(call: Call, templates: Iterable[_Template]) -> Call:
    """Return a call with the first template that its path fits, as frameworks look for them."""
    verb, _, prefix = call.method.partition(" ")
    prefix = "" if prefix == "/" else prefix
    below = call.path.removeprefix(prefix)
    mine = [each for each in templates if each.verb == verb]
    for pattern in ("segments", "rest"):
        for each in mine:
            if getattr(each, pattern).fullmatch(below):
                return replace(call, method=f"{verb} {prefix}{each.path}")
    return call


def _templates(document: Mapping[str, Any]) -> Iterator[_Template]:
    paths = document.get("paths")
    for path, operations in paths.items() if isinstance(paths, Mapping) else ():
        if not isinstance(path, str) or not isinstance(operations, Mapping):
            continue
        fixed = [re.escape(part) for part in _PARAMETER.split(path)]
        segments = "[^/]+".join(fixed)
        rest = f"{segments.removesuffix('[^/]+')}.+" if path.endswith("}") else segments
        for verb in operations:
            if verb in _VERBS:
                yield _Template(verb.upper(), path, re.compile(segments), re.compile(rest))
