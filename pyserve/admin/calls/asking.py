"""Explains a call from the ingress's record of it and the answers of replicas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyserve.admin.calls.explaining import Known, called, explanation, summary
from pyserve.admin.calls.store import KINDS, read_record
from pyserve.errors import PyserveError

if TYPE_CHECKING:
    from pyserve.admin.api.catalogue import Documents
    from pyserve.admin.api.overview import Between
    from pyserve.admin.calls.store import Call
    from pyserve.admin.context import Front

HEADER = "x-pyserve-explain: 1"
"""The header of a request whose call is to be kept."""
# Enough for a screen; all of them can be explained by their ids.
_LISTED_MAX = 100
# A call is tried a few times and calls a few deployments. Which of their replicas served it is not
# recorded, so all are asked, up to this number.
_ASKED_MAX = 64


class Calls:
    """The calls of one ingress. For one event loop.

    Args:
        front: The ingress.
        look: Looks at the mesh: which replicas are outliers, and on which nodes they are.
        routes: Names calls of plain HTTP.
    """

    def __init__(
        self, front: Front, look: Callable[[], Awaitable[Between]], routes: Routes
    ) -> None:
        self._front = front
        self._look = look
        self._routes = routes
        self._store = front.kept_calls()

    async def kept(self) -> dict[str, Any]:
        """Return summaries of the first calls of each kind."""
        self._front.take_calls()
        found = {kind: self._store.of_kind(kind) for kind in KINDS}
        listed = {
            kind: [read_record(record) for record in records[:_LISTED_MAX]]
            for kind, records in found.items()
        }
        named = iter(
            await self._routes.named([call for calls in listed.values() for call in calls])
        )
        return {
            kind: {
                "kept": len(records),
                "calls": [summary(next(named)) for _ in listed[kind]],
            }
            for kind, records in found.items()
        }

    async def explain(self, request_id: str) -> dict[str, Any] | None:
        """Return where the time of the newest call of an id went; ``None``: none is kept."""
        self._front.take_calls()
        calls = self._store.find(request_id)
        if not calls:
            return None
        known = await self._ask(calls[0])
        (call,) = await self._routes.named(calls[:1])
        return {**explanation(call, known), "others_of_this_id": len(calls) - 1}

    async def _ask(self, call: Call) -> Known:
        """Ask the replicas that had the call, then those of deployments that it called there."""
        tried = {attempt.replica_id: call.target for attempt in call.attempts}
        delays, silent = await self._delays(call, tried)
        targets = {target for each in delays.values() for target in called(each)}
        replicas = {target: tuple(self._front.replicas_of(target)) for target in targets}
        of_others = {each: target for target in replicas for each in replicas[target]}
        more, more_silent = await self._delays(
            call, {name: target for name, target in of_others.items() if name not in tried}
        )
        known = Known(delays | more, replicas, silent=silent | more_silent)
        try:
            seen = await self._look()
        except PyserveError as error:
            # The information about the call is still useful without the snapshot.
            return replace(known, silent={**known.silent, "the mesh": str(error)})
        return replace(known, outliers=seen.outliers, nodes=seen.now.nodes())

    async def _delays(
        self, call: Call, replicas: Mapping[str, str]
    ) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
        asked: Iterable[tuple[str, str]] = list(replicas.items())[:_ASKED_MAX]
        answers = await asyncio.gather(
            *(self._front.delays_of(target, name, call.request_id) for name, target in asked),
            return_exceptions=True,
        )
        found: dict[str, Mapping[str, Any]] = {}
        silent: dict[str, str] = {}
        for (name, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, ConnectionError):
                silent[name] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[name] = answer
        return found, silent


def not_kept(request_id: str) -> str:
    """Return advice about a call of which nothing is known."""
    return (
        f"no call {request_id} is kept here; those that fail, the slowest of late and the sampled "
        f"ones are, and those that come with the header {HEADER}"
    )


# Finds the route of a web application for a call, from its deployment's OpenAPI document.

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
