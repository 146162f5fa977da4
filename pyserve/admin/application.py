"""The admin server's application, and its routes.

- ``/api``: the mesh as JSON, for the page, ``pyserve top`` and ``pyserve explain``.
- ``/`` and ``/page``: the web page, files of the package, which contain no data and load nothing
  from elsewhere. They are open to everybody, also without the token: the page asks for it and sends
  it to ``/api``.
- ``/metrics``: the numbers of this node; ``/-/targets``: where those of all nodes are.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pyserve.admin.access import Doorkeeper
from pyserve.admin.api.counted import read_families
from pyserve.admin.api.resources import Api
from pyserve.admin.api.sampler import Sampler
from pyserve.admin.api.snapshot import MeshSnapshot
from pyserve.admin.context import AdminContext, Front
from pyserve.admin.histograms import coarser
from pyserve.admin.rate_limits import RateLimited
from pyserve.config import is_loopback
from pyserve.errors import MeshUnavailable
from pyserve.observe.metrics import MODELS, Family
from pyserve.wire.v1 import control_pb2

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


def make_application(
    admin_context: AdminContext, token: bytes, *, is_guarded: bool, is_private: bool
) -> ASGIApp:
    """Return the application of one admin server, guarded by a ``Doorkeeper``."""
    routes = [*metrics_routes(admin_context), *api_routes(admin_context)]
    if admin_context.front is not None:
        routes += page_routes()
    application = Starlette(routes=routes)
    return Doorkeeper(
        application,
        token,
        is_open=is_of_page,
        is_guarded=is_guarded,
        is_private=is_private,
    )


_SILENT = "pyserve_scrape_processes"


def api_routes(admin_context: AdminContext) -> list[Route]:
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
            steps=counted.steps,
            kept=counted.kept,
            models=self._front.models(),
            caches=counted.caches,
            missing=(words,) if silent else (),
        )


_FOLDER = Path(__file__).with_name("page")
_PREFIX = "/page/"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but these files and this server; no text ever becomes a script or HTML.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # The results of calls from the page are at addresses of the page's own.
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # Revalidated each time, so that a new version of pyserve brings its own page.
    "cache-control": "no-cache",
}


def page_routes() -> list[Route]:
    """Return a route for each file."""
    files = [path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES]
    found = [Route(_PREFIX + path.name, _file(path), methods=["GET"]) for path in files]
    return [Route("/", _file(_FOLDER / "index.html"), methods=["GET"]), *found]


def is_of_page(path: str) -> bool:
    """Say whether a path is one of the page's own."""
    return path == "/" or path.startswith(_PREFIX)


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {**_HEADERS, "content-type": _TYPES[path.suffix], "etag": tag}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return answer


# Texts of one scrape. More are asked for by nobody but to have them written; Prometheus's own
# format will do for those.
_FORMATS_MAX = 4


def metrics_routes(admin_context: AdminContext) -> list[Route]:
    """Return the routes; the one for targets only if the mesh's status is available."""
    found = [Route("/metrics", _Metrics(admin_context).get, methods=["GET"])]
    if admin_context.status is not None:
        found.append(Route("/-/targets", _Targets(admin_context).get, methods=["GET"]))
    return found


class _Metrics:
    def __init__(self, admin_context: AdminContext) -> None:
        # Two Prometheus servers ask for the same numbers.
        self._pages = RateLimited(lambda: _page(admin_context))

    async def get(self, request: Request) -> Response:
        page = await self._pages.get()
        text, content_type = await page.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})


async def _page(admin_context: AdminContext) -> _Page:
    families = [each for each in await admin_context.gathering.gather() if each.name != MODELS]
    return _Page(coarser(families, admin_context.bounds))


class _Page:
    """The numbers of one scrape, written once for each format."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families
        self._turn = asyncio.Lock()
        self._texts: dict[str, bytes] = {}

    async def text(self, accept: str) -> tuple[bytes, str]:
        content_type = content_type_of(accept)
        async with self._turn:
            if content_type not in self._texts and len(self._texts) >= _FORMATS_MAX:
                accept, content_type = "", content_type_of("")
            if content_type not in self._texts:
                # Of a large node it is megabytes of text, which must not hold up the loop.
                text, _ = await asyncio.to_thread(write, self._families, accept)
                self._texts[content_type] = text
            return self._texts[content_type], content_type


class _Targets:
    def __init__(self, admin_context: AdminContext) -> None:
        assert admin_context.status is not None, "the route is there"
        self._admin_context = admin_context
        self._replies = RateLimited(admin_context.status)

    async def get(self, _request: Request) -> Response:
        try:
            reply = await self._replies.get()
        except ConnectionError as error:
            # Prometheus keeps the targets that it has.
            return JSONResponse({"error": str(error)}, status_code=503)
        found: list[dict[str, Any]] = targets_of(reply, speaks_tls=self._admin_context.speaks_tls)
        return JSONResponse(found)


# Writes metric families in the formats of Prometheus and OpenMetrics.

# Longer than any usual header; a client may still send this much.
_ACCEPT_LENGTH_MAX = 1024


def write(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """Return the text and its content type, for a request with this ``Accept`` header.

    OpenMetrics, with exemplars, where the client takes it; else Prometheus's own format.
    """
    encode, content_type = _encoder(accept)
    text: bytes = encode(_Families(families))
    return text, content_type


def content_type_of(accept: str) -> str:
    """Return the content type that ``write`` chooses; of the few that there are."""
    return _encoder(accept)[1]


def _encoder(accept: str) -> tuple[Callable[[Any], bytes], str]:
    try:
        return choose_encoder(accept[:_ACCEPT_LENGTH_MAX])
    except (TypeError, ValueError):
        # A version that is not a number, "version=1.x": such a header may be left alone (RFC 9110,
        # 12.1).
        return choose_encoder("")


class _Families:
    """The part of a prometheus_client registry that its encoders use."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._families)


def _metric(family: Family) -> Metric:
    metric = Metric(family.name, family.text, family.kind)
    for sample in family.samples:
        exemplar = None
        if sample.exemplar is not None:
            trace_id, value, at = sample.exemplar
            exemplar = Exemplar({"trace_id": trace_id}, value, at)
        metric.add_sample(
            family.name + sample.suffix, dict(sample.labels), sample.value, exemplar=exemplar
        )
    return metric


# All admin servers of a mesh, in the format of Prometheus's HTTP discovery.


def targets_of(reply: control_pb2.StatusReply, *, speaks_tls: bool) -> list[dict[str, Any]]:
    """Return a target for each admin server that the controller knows of.

    Args:
        reply: The state of the mesh.
        speaks_tls: Whether those that are not on loopback speak TLS.
    """
    found: dict[str, dict[str, Any]] = {}
    for address, node, role in _servers(reply):
        labels = {"pyserve_node": node, "pyserve_role": role}
        if speaks_tls and not is_loopback(address.rpartition(":")[0]):
            labels["__scheme__"] = "https"
        found.setdefault(address, {"targets": [address], "labels": labels})
    return [found[address] for address in sorted(found)]


def _servers(reply: control_pb2.StatusReply) -> Iterator[tuple[str, str, str]]:
    for ingress in reply.ingresses:
        # Without addresses it has gone.
        if ingress.admin and ingress.addresses:
            yield ingress.admin, ingress.node, "ingress"
    if reply.admin:
        yield reply.admin, "", "controller"
    for application in reply.applications:
        for deployment in application.deployments:
            for replica in deployment.replicas:
                if replica.admin:
                    yield replica.admin, replica.node, "replica"
