"""Applies the applications of a file to a mesh, and shows how far they come."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyserve.driver.progress import ProgressView, progress_view
from pyserve.errors import DeploymentFailed, MeshUnavailable

if TYPE_CHECKING:
    from pyserve.control.state.run import Run
    from pyserve.driver.client import ControlClient
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
