"""Applies the applications of a file to a mesh, and says when they serve."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyserve.driver.progress import ProgressView, progress_view
from pyserve.errors import DeploymentFailed, MeshUnavailable

if TYPE_CHECKING:
    from pyserve.control.state.specs import Run
    from pyserve.driver.client import ControlClient
    from pyserve.driver.session import Session
    from pyserve.wire.v1 import control_pb2


@dataclass(slots=True)
class Outcome:
    """The outcome of applying a file: its applications, by name.

    Attributes:
        addresses: Where the ingress listens.
        deployed: Those that serve what the file says.
        unchanged: Those of them that were left as they were.
        failed: Those that could not be brought up, each with its reason.
        deleted: Those that the file lacks.
    """

    addresses: tuple[str, ...] = ()
    deployed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failed: dict[str, DeploymentFailed] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)


def apply(
    client: ControlClient,
    request: control_pb2.ApplyRequest,
    *,
    run: Run | None = None,
    wait: bool = True,
    view: ProgressView | None = None,
) -> Outcome:
    """Make these the applications that the mesh runs of files, and wait until all have settled.

    Args:
        client: Speaks with the controller.
        request: All applications of the file.
        run: The ``pyserve run`` whose file it is; None: the mesh's own.
        wait: False: return when the mesh has taken them.
        view: Shows progress; by default on standard error.

    Raises:
        MeshError: The controller refuses, and nothing has changed; or it does not answer.
    """
    outcome = Outcome()
    awaited = {each.application for each in request.applications}
    asked = client.apply(request, run=run)
    with closing(asked) as events, view or progress_view() as shown:
        for event in events:
            _take(event, outcome, shown, several=len(awaited) > 1)
            if not wait:
                break
    missing = awaited - {*outcome.deployed, *outcome.failed}
    if missing and wait:
        raise MeshUnavailable(
            f"the controller ended while it deployed {', '.join(sorted(missing))}; its output "
            f"says why"
        )
    if not outcome.failed:
        _check_capacity(client, request)
    return outcome


def _check_capacity(client: ControlClient, request: control_pb2.ApplyRequest) -> None:
    """Warn if the controller ignores the target capacity of the request."""
    if not request.HasField("target_capacity") or not request.applications:
        return
    if not client.status().HasField("target_capacity"):
        sys.stderr.write(
            "pyserve: warning: the controller of this mesh is of a release that does not know "
            "target_capacity, and runs all replicas\n"
        )


def _take(
    event: control_pb2.ApplyEvent, outcome: Outcome, shown: ProgressView, *, several: bool
) -> None:
    name, kind = event.application, event.event.WhichOneof("kind")
    if kind is None:
        outcome.deleted.append(name)
    elif kind == "progress":
        progress = event.event.progress
        if several:
            progress.deployment = f"{name}/{progress.deployment}"
        shown.update(progress)
    elif kind == "notice":
        sys.stderr.write(f"pyserve: {event.event.notice}\n")
    elif kind == "deployed":
        outcome.addresses = tuple(event.event.deployed.addresses)
        outcome.deployed.append(name)
        if event.event.deployed.unchanged:
            outcome.unchanged.append(name)
    else:
        failed = event.event.failed
        outcome.failed[name] = DeploymentFailed(failed.deployment, failed.summary, failed.traceback)


# What `pyserve run`, and a script that blocks, say when an application serves.


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
