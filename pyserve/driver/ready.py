"""What ``pyserve run``, and a script that blocks, say when an application serves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.driver.applying import Outcome
    from pyserve.driver.session import Session
    from pyserve.wire.v1 import control_pb2


def all_ready(
    session: Session, request: control_pb2.ApplyRequest, outcome: Outcome
) -> Iterator[str]:
    """Yield lines about a file's applications: those newly deployed, and those deleted."""
    anew = {*outcome.deployed} - {*outcome.unchanged}
    served = {
        each.application: {deployment.name for deployment in each.deployments}
        for each in request.applications
        if each.application in anew
    }
    yield from ready(session, served, outcome.addresses)
    for name in outcome.deleted:
        yield f"pyserve: application {name!r} is deleted"


def ready(
    session: Session, served: Mapping[str, Collection[str]], listening: Sequence[str]
) -> Iterator[str]:
    """Yield lines that say that applications serve, where, and how to try them.

    Args:
        session: Of their mesh.
        served: Names of the applications, and of the deployments that each has in this version;
            those that it leaves out may have replicas still.
        listening: Where the ingress listens.
    """
    reply = session.client.status()
    for each in reply.applications:
        if each.name in served:
            yield from _of_application(each, served[each.name], reply, listening)


def ready_line(application: str, listening: Sequence[str]) -> str:
    """Return the line that says that an application serves, and where."""
    where = " and ".join(listening) or "no address"
    return f"pyserve: application {application!r} is ready at {where}"


def _of_application(
    found: control_pb2.ApplicationStatus,
    deployments: Collection[str],
    reply: control_pb2.StatusReply,
    listening: Sequence[str],
) -> Iterator[str]:
    name = found.name
    yield ready_line(name, listening)
    # Only a replica knows what a deployment answers.
    present = [each for each in found.deployments if each.wanted]
    has_ingress = any(each.name == found.ingress_deployment for each in present)
    if found.route_prefix and listening and has_ingress:
        scheme = "https" if reply.ingress.speaks_tls else "http"
        yield f"pyserve: plain HTTP at {scheme}://{listening[0]}{found.route_prefix}"
    tls = " --tls" if reply.ingress.speaks_tls else ""
    services = sorted({service for each in present for service in each.services})
    # Every deployment has a service of its own for handles, which has no .proto.
    of_handles = {f"{name}.{each.name}" for each in found.deployments}
    for service in services:
        if service not in of_handles:
            yield (
                f"pyserve: serving {service}; try `pyserve call{tls} {service}/METHOD key=value`"
            )
    for each in found.deployments:
        if not each.wanted and each.name in deployments:
            yield (
                f"pyserve: {each.name} has no replicas (num_replicas=0), so nothing answers its "
                f"calls until it is deployed with some"
            )
