"""Explains a call from the ingress's record of it and the answers of replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyserve.admin.calls.explaining import Known, called, explanation, summary
from pyserve.admin.calls.records import read_record
from pyserve.admin.calls.store import KINDS
from pyserve.errors import PyserveError

if TYPE_CHECKING:
    from pyserve.admin.api.overview import Between
    from pyserve.admin.calls.records import Call
    from pyserve.admin.calls.routes import Routes
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
