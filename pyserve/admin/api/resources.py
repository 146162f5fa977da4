"""The resources below ``/api``, for the page, ``pyserve top`` and ``pyserve explain``.

The admin server mounts them behind its check of the mesh token.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pyserve.admin.api.catalogue import Catalogue, Documents
from pyserve.admin.api.overview import Between, deployment, overview
from pyserve.admin.api.sampler import Sampler, TooManyViewers
from pyserve.admin.api.snapshot import Batches, Cache, MeshSnapshot, Routed, Steps
from pyserve.admin.calls.asking import Calls, Routes, not_kept
from pyserve.admin.histograms import Histogram, rate, seconds, share
from pyserve.admin.trying import (
    REQUEST_BYTES_MAX,
    DoorClosed,
    TooManyTries,
    Tries,
    message_of,
    wanted_of,
)
from pyserve.errors import PyserveError, UsageError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Send

    from pyserve.admin.context import Front
    from pyserve.admin.trying import Event
PAGE_HEADER = "x-pyserve-page"
"""A header that a form of another site cannot send: a browser's preflight is refused."""
_NO_STORE = {"cache-control": "no-store"}
_STREAMED = {**_NO_STORE, "x-accel-buffering": "no"}


class Api:
    """The resources, backed by a sampler.

    Args:
        sampler: Takes snapshots.
        front: The ingress of this process.
        tries: Whether methods may be called from here.
    """

    def __init__(self, sampler: Sampler, front: Front, *, tries: bool = False) -> None:
        self._sampler = sampler
        self._front = front
        self._tries = Tries() if tries else None
        documents = Documents(front)
        self._catalogue = Catalogue(front, documents)
        self._calls = Calls(front, sampler.at_once, Routes(documents))

    def routes(self) -> list[Route]:
        """Return what to mount."""
        deployment = "/api/deployments/{application}/{name}.json"
        found = [
            Route("/-/openapi.json", _answering(self._openapi), methods=["GET"]),
            Route("/api/overview.json", _answering(self._overview), methods=["GET"]),
            Route(deployment, _answering(self._deployment), methods=["GET"]),
            Route("/api/models.json", _answering(self._models), methods=["GET"]),
            Route("/api/methods.json", _answering(self._methods), methods=["GET"]),
            Route("/api/viewers.json", self._viewers, methods=["GET"]),
            Route("/api/events", self._events, methods=["GET"]),
            Route("/api/calls.json", _answering(self._list_calls), methods=["GET"]),
            Route("/api/calls/{request_id:path}", _answering(self._explain), methods=["GET"]),
        ]
        if self._tries is not None:
            found += _Trying(self._front, self._tries).routes()
        return found

    async def _overview(self, _request: Request) -> Response:
        return _json(overview(await self._sampler.once()))

    async def _deployment(self, request: Request) -> Response:
        application, name = request.path_params["application"], request.path_params["name"]
        found = deployment_details(await self._sampler.once(), application, name)
        if found is None:
            return _refusal(404, f"the mesh has no deployment {application}/{name}")
        return _json(found)

    async def _models(self, _request: Request) -> Response:
        return _json(models((await self._sampler.once()).now))

    async def _viewers(self, _request: Request) -> Response:
        return _json({"viewers": self._sampler.viewers})

    async def _openapi(self, _request: Request) -> Response:
        return _json((await self._catalogue.get()).document)

    async def _methods(self, _request: Request) -> Response:
        made = await self._catalogue.get()
        undescribed = made.document.get("x-pyserve-undescribed", [])
        return _json(
            {
                "can_be_tried": self._tries is not None,
                "methods": made.forms,
                "undescribed": undescribed,
            }
        )

    async def _list_calls(self, _request: Request) -> Response:
        return _json(await self._calls.kept())

    async def _explain(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        found = await self._calls.explain(request_id)
        return _json(found) if found is not None else _refusal(404, not_kept(request_id))

    async def _events(self, _request: Request) -> Response:
        viewer = self._sampler.watch()
        try:
            first = await anext(viewer)
        except TooManyViewers as error:
            return _refusal(503, str(error))
        return _Stream(_told(first, viewer))


class _Trying:
    """The resources that call methods."""

    def __init__(self, front: Front, tries: Tries) -> None:
        self._front = front
        self._tries = tries

    def routes(self) -> list[Route]:
        more = "/api/call/{call_id}"
        return [
            Route("/api/call", _answering(self._call), methods=["POST"]),
            Route(f"{more}/message", _answering(self._send), methods=["POST"]),
            Route(f"{more}/end", _answering(self._end), methods=["POST"]),
        ]

    async def _call(self, request: Request) -> Response:
        wanted = wanted_of(await _body_of_page(request))
        door = self._front.door()
        if door is None:
            return _refusal(503, "the ingress of this process listens nowhere")
        events = self._tries.call(door, wanted)
        # Before the head, so that a failure to begin can have a status of its own.
        first = await anext(events)
        return _Stream(_tried(first, events))

    async def _send(self, request: Request) -> Response:
        data = message_of(await _body_of_page(request))
        await self._tries.send(request.path_params["call_id"], data)
        return _json({})

    async def _end(self, request: Request) -> Response:
        await _body_of_page(request)
        await self._tries.send(request.path_params["call_id"], b"")
        return _json({})


class _Stream(StreamingResponse):
    """Server-sent events, whose source ends as soon as the client has gone."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=_STREAMED)
        self._events = events

    async def stream_response(self, send: Send) -> None:
        """Send all events."""
        async with aclosing(self._events):
            await super().stream_response(send)


async def _tried(first: Event, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        yield _encoded_event(*first)
        async for event in events:
            yield _encoded_event(*event)


def _encoded_event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encoded(data))


async def _told(
    first: Between | PyserveError, viewer: AsyncGenerator[Between | PyserveError, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(viewer):
        yield _event(first)
        async for latest in viewer:
            yield _event(latest)


def _event(latest: Between | PyserveError) -> bytes:
    if isinstance(latest, PyserveError):
        return _encoded_event("trouble", str(latest))
    return _encoded_event("overview", overview(latest))


def _answering(
    resource: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a resource that turns errors into answers."""

    async def answered(request: Request) -> Response:
        try:
            return await resource(request)
        except _Unread as error:
            return _unread(error.status, str(error))
        except UsageError as error:
            return _refusal(400, str(error))
        except (TooManyTries, TooManyViewers) as error:
            return _refusal(503, str(error))
        except DoorClosed as error:
            return _refusal(502, str(error))
        except PyserveError as error:
            return _refusal(503, str(error))

    return answered


async def _body_of_page(request: Request) -> bytes:
    """Return the body of a request of the page.

    Raises:
        _Unread: Another site may have sent it, or it is too long.
    """
    if PAGE_HEADER not in request.headers:
        raise _Unread(403, f"a call needs the header {PAGE_HEADER}: 1")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_BYTES_MAX:
            raise _Unread(413, f"a request of the page has at most {REQUEST_BYTES_MAX} bytes")
    return bytes(body)


class _Unread(Exception):
    """Refuses a request whose body is not read."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _json(value: Any) -> Response:
    return Response(_encoded(value), media_type="application/json", headers=_NO_STORE)


def _refusal(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status, headers=_NO_STORE)


def _unread(status: int, text: str) -> Response:
    """Refuse a request without reading its body; its connection is closed afterwards."""
    answer = _refusal(status, text)
    answer.headers["connection"] = "close"
    return answer


# One deployment with everything known about it.


def deployment_details(between: Between, application: str, name: str) -> dict[str, Any] | None:
    """Return one deployment as JSON, ``None`` if there is none with that name."""
    found = next(
        (
            (of, each)
            for of in between.now.status.applications
            for each in of.deployments
            if (of.name, each.name) == (application, name)
        ),
        None,
    )
    if found is None:
        return None
    target = f"{application}/{name}"
    routed = between.routed.get(target, Routed())
    return {
        **deployment(between, *found),
        "interval_s": round(between.passed_s, 3),
        "counts": dict(routed.counts),
        "releases": dict(routed.releases),
        "batches": [
            _batches(function, each, between.passed_s)
            for (of, function), each in sorted(between.batches.items())
            if of == target
        ],
        "steps": [
            _steps(function, each, between.passed_s)
            for (of, function), each in sorted(between.steps.items())
            if of == target
        ],
        "cache": _cache_entries(routed, between.now.kept.get(target, 0), between.passed_s),
        "latency": histogram(routed.answered),
        "parked_wait": histogram(routed.parked),
    }


def _batches(function: str, found: Batches, passed_s: float) -> dict[str, Any]:
    left = sum(found.reasons.values())
    reasons = sorted(found.reasons.items(), key=lambda item: item[1], reverse=True)
    return {
        "function": function,
        "batches_per_second": rate(left, passed_s),
        "size_mean": seconds(found.sizes.mean_s),
        "wait_mean_s": seconds(found.waits.mean_s),
        "wait_p99_s": seconds(found.waits.quantile(0.99)),
        "run_mean_s": seconds(found.runs.mean_s),
        "waiting": found.waiting_now,
        "reasons": [
            {"reason": reason, "batches": count, "share": share(count, left)}
            for reason, count in reasons
            if count
        ],
        "sizes": histogram(found.sizes),
    }


def _steps(function: str, found: Steps, passed_s: float) -> dict[str, Any]:
    return {
        "class": function,
        "running": int(found.held.get("running", 0)),
        "parked": int(found.held.get("parked", 0)),
        "waiting": int(found.held.get("waiting", 0)),
        "waiting_cost": found.held.get("waiting_cost", 0),
        "budget_used": found.held.get("used", 0),
        "budget": found.held.get("budget"),
        "steps_per_second": rate(found.runs.count, passed_s),
        "step_mean_s": seconds(found.runs.mean_s),
        "size_mean": seconds(found.sizes.mean_s),
        "first_value_p50_s": seconds(found.first_values.quantile(0.5)),
        "first_value_p99_s": seconds(found.first_values.quantile(0.99)),
        "value_mean_s": seconds(found.next_values.mean_s),
        "value_p99_s": seconds(found.next_values.quantile(0.99)),
        "admissions_per_second": rate(found.counts.get("admissions", 0), passed_s),
        "preemptions": found.counts.get("preemptions", 0),
        "sizes": histogram(found.sizes),
    }


def _cache_entries(found: Routed, kept: int, passed_s: float) -> dict[str, Any] | None:
    """Return what calls found of the entries they named; ``None``: no replica reports any."""
    hits = found.counts.get("cache_keys_found", 0)
    misses = found.counts.get("cache_keys_missed", 0)
    if not (kept or hits or misses):
        return None
    return {
        "kept": kept,
        "found_per_second": rate(hits, passed_s),
        "missed_per_second": rate(misses, passed_s),
        "found_share": share(hits, hits + misses),
    }


def histogram(found: Histogram) -> Mapping[str, Any]:
    """Return a histogram as JSON."""
    return {
        "buckets": list(found.bounds),
        "counts": list(found.counts),
        "sum": round(found.sum_s, 6),
    }


# The models that replicas have loaded, and the cost of keeping them loaded.

# More do not fit on a screen.
_MODELS_SHOWN_MAX = 500


def models(look: MeshSnapshot) -> dict[str, Any]:
    """Return the models of all replicas as JSON, those used most first.

    Counts are those of this node's replicas since they started; of a replica elsewhere only the
    ids are known.
    """
    found: list[dict[str, Any]] = [
        {
            "target": target,
            "replica": replica,
            "function": function,
            "model": name,
            "load_s": seconds(each.get("load_s")),
            "held": bool(each.get("held")),
            **{word: int(each.get(word, 0)) for word in _OF_MODELS},
        }
        for (target, replica, function), cache in look.caches.items()
        for name, each in cache.models.items()
    ]
    found.sort(key=lambda each: each["hits"], reverse=True)
    told = {(each["replica"], each["model"]) for each in found}
    return {
        "models": found[:_MODELS_SHOWN_MAX],
        "models_left_out": len(found[_MODELS_SHOWN_MAX:]),
        "caches": [_cache(*key, cache) for key, cache in sorted(look.caches.items())],
        "others": [
            {"replica": replica, "model": name}
            for replica, names in sorted(look.models.items())
            for name in names
            if (replica, name) not in told
        ][:_MODELS_SHOWN_MAX],
    }


_OF_MODELS = ("bytes", "hits", "misses", "loads", "evictions")


def _cache(target: str, replica: str, function: str, cache: Cache) -> dict[str, Any]:
    counts = cache.counts
    hits, misses = counts.get("hit", 0), counts.get("miss", 0)
    return {
        "target": target,
        "replica": replica,
        "function": function,
        "models": counts.get("models", 0),
        "models_max": counts.get("max"),
        "bytes": counts.get("bytes", 0),
        "loading": counts.get("loading", 0),
        "waiting": counts.get("waiting", 0),
        "hits": hits,
        "misses": misses,
        "hit_share": share(hits, hits + misses),
        "loads": counts.get("loaded", 0),
        "loads_failed": counts.get("failed", 0),
        "evictions": counts.get("evictions", 0),
        "reloads": counts.get("reloads", 0),
        "load_mean_s": seconds(cache.load_times.mean_s),
        "load_p99_s": seconds(cache.load_times.quantile(0.99)),
    }
