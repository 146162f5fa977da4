"""Applies the applications of a file to a mesh, and shows how far deployments and drains have come.

A live line on a terminal, plain lines otherwise.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from pyserve.errors import DeploymentFailed, MeshUnavailable, PyserveError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from pyserve.control.state.specs import Run
    from pyserve.driver.client import ControlClient
    from pyserve.driver.screen import Screen
    from pyserve.driver.session import Session
    from pyserve.wire.v1 import control_pb2


_BARS = "bars"


class ProgressView(Protocol):
    """Takes progress while it is entered."""

    def update(self, progress: control_pb2.Progress) -> None:
        """Show one event."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class PlainProgress:
    """Writes one line for each change."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last: dict[str, str] = {}

    def update(self, progress: control_pb2.Progress) -> None:
        """Write the event, unless it says what the last one said."""
        text = _note(progress)
        note = f" ({text})" if text else ""
        line = f"{progress.deployment}: {progress.ready} of {progress.wanted} replicas ready{note}"
        if self._last.get(progress.deployment) != line:
            self._last[progress.deployment] = line
            self._file.write(f"pyserve: {line}\n")
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveProgress:
    """Draws one bar for each deployment."""

    def __init__(self, screen: Screen) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._screen = screen
        # The screen draws it.
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} ready"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            auto_refresh=False,
        )
        self._tasks: dict[str, TaskID] = {}

    def update(self, progress: control_pb2.Progress) -> None:
        """Move the deployment's bar."""
        from rich.markup import escape

        task = self._tasks.get(progress.deployment)
        # Brackets in a note are text, not markup.
        note = escape(_note(progress))
        if task is None:
            task = self._bars.add_task(progress.deployment, total=progress.wanted, note="")
            self._tasks[progress.deployment] = task
        self._bars.update(task, completed=progress.ready, total=progress.wanted, note=note)

    def __enter__(self) -> Self:
        self._screen.show(_BARS, self._bars)
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.hide(_BARS)


def _note(progress: control_pb2.Progress) -> str:
    """Return the note to show beside the counts.

    The error that ends a deploy tells a failure in full.
    """
    line = progress.note.partition("\n")[0]
    return "" if line == "is ready" else line  # As the counts say already.


def progress_view(screen: Screen | None = None, file: TextIO | None = None) -> ProgressView:
    """Return the view that suits a file, by default standard error.

    Args:
        screen: Draws on it already; ``None``: nobody does.
        file: Where to show progress.
    """
    target = sys.stderr if file is None else file
    if screen is None and target.isatty():
        from pyserve.driver.screen import Screen

        screen = Screen(target)
    return PlainProgress(target) if screen is None else LiveProgress(screen)


# A person watches, and nothing announces the end of a call.
_LOOK_S = 0.25
# Where lines cannot be redrawn, fewer are enough.
_LINE_S = 1.0
_ANSWER_TIMEOUT_S = 2.0
_ROW = "draining"


class Draining:
    """A context that polls a mesh, in a thread, and shows what its drain waits for.

    It shows nothing for a drain that waits for no call, or for a mesh that stays.

    Args:
        client: Speaks with the controller, which ends meanwhile.
        screen: Draws on the terminal; ``None``: lines are written to standard error.
    """

    def __init__(self, client: ControlClient, screen: Screen | None) -> None:
        self._client = client
        self._screen = screen
        self._ended = threading.Event()
        self._told = 0
        self._told_at = -math.inf
        self._thread = threading.Thread(target=self._look, name="pyserve-draining", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_ANSWER_TIMEOUT_S)
        if self._screen is not None:
            self._screen.hide(_ROW)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                reply = self._client.status()
            except PyserveError:
                # It has ended, which the thread that waits for it notices too.
                return
            if reply.HasField("drain_left_s") and not self._ended.is_set():
                self._tell(reply)

    def _tell(self, reply: control_pb2.StatusReply) -> None:
        calls = reply.ingress.in_flight + reply.ingress.parked
        text = (
            f"draining: {calls} {'call' if calls == 1 else 'calls'} left, "
            f"{math.ceil(reply.drain_left_s)} s at most"
        )
        if self._screen is not None:
            from rich.text import Text

            if calls:
                self._screen.show(_ROW, Text(text))
            else:
                self._screen.hide(_ROW)
        elif calls != self._told and time.monotonic() - self._told_at >= _LINE_S:
            self._told, self._told_at = calls, time.monotonic()
            sys.stderr.write(f"pyserve: {text}\n")


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
