"""``/metrics``, the numbers of this node, and ``/-/targets``, where those of all nodes are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pyserve.admin.buckets import coarser
from pyserve.admin.rate_limits import RateLimited
from pyserve.config import is_loopback
from pyserve.observe.metrics import MODELS, Family
from pyserve.wire.v1 import control_pb2

if TYPE_CHECKING:
    from starlette.requests import Request

    from pyserve.admin.context import AdminContext
# Texts of one scrape. More are asked for by nobody but to have them written; Prometheus's own
# format will do for those.
_FORMATS_MAX = 4


def routes(admin_context: AdminContext) -> list[Route]:
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
