"""The commands for those who look for a fault.

``pyserve logs`` prints what the replicas of a deployment write, ``profile`` records where the time
of one goes, as py-spy sees it from outside, and ``doctor`` says what is wrong with a mesh and its
machine, and what to do.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyserve.cli.commands import CommandFailed
from pyserve.cli.settings import open_mesh, settings_for
from pyserve.config import read_settings
from pyserve.driver.doctor import examine
from pyserve.driver.doctor_mesh import Finding, State
from pyserve.driver.session import end_session
from pyserve.driver.status import MeshStatus, ReplicaStatus, read_status
from pyserve.observe.logs.formats import INDENT, shown_id

if TYPE_CHECKING:
    from pyserve.wire.v1 import control_pb2


@click.command(short_help="Print what the replicas of a deployment write.")
@click.argument("deployment", metavar="DEPLOYMENT|REPLICA")
@click.option("-f", "--follow", is_flag=True, help="Go on with what they write, until Ctrl-C.")
@click.option("--application", default="", help="Where several have a deployment of that name.")
@click.option(
    "-n",
    "--lines",
    "lines_max",
    type=click.IntRange(min=0),
    default=0,
    help="Only so many of the last lines. [default: all that are kept]",
)
@click.option(
    "--request",
    "request_id",
    metavar="ID",
    help="Only what was logged while that request was handled, with its tracebacks.",
)
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def logs(
    deployment: str,
    follow: bool,
    application: str,
    lines_max: int,
    request_id: str | None,
    controller: str | None,
) -> None:
    """Print what the replicas of DEPLOYMENT, or one REPLICA, wrote to standard output and error.

    The mesh keeps the last 1000 lines of a deployment, or 256 KiB, also of replicas that have
    ended, and of those that were not to end the last 40 for an hour; with PYSERVE_LOG_DIR files
    have everything. Replicas in containers of their own write to the log of their engine.
    """
    if request_id and lines_max:
        raise click.UsageError("--lines counts those of all requests; leave it out with --request")
    session = open_mesh(controller, "there are no logs")
    try:
        name, of_replica, _ = deployment.partition("#")
        lines = session.client.logs(
            application,
            name,
            lines_max=lines_max,
            follow=follow,
            replica_id=deployment if of_replica else "",
        )
        is_empty = True
        for each in of_request(lines, request_id) if request_id else lines:
            is_empty = False
            mark = f"[{each.replica_id}] " if each.replica_id else ""
            click.echo(f"{mark}{each.line}")
        if request_id and is_empty:
            raise CommandFailed(
                f"{deployment} has no line of a request {request_id!r} among those that are kept; "
                f"`pyserve explain {request_id}` says where it went, if it is kept there"
            )
    finally:
        end_session()


def of_request(
    lines: Iterable[control_pb2.LogLine], request_id: str
) -> Iterator[control_pb2.LogLine]:
    """Yield the lines of records that name one request, in text or JSON."""
    in_text = re.compile(rf" \[{re.escape(shown_id(request_id))}(?: trace=\w+)?\]: ")
    in_json = f'"request_id": {json.dumps(request_id)}'
    # Each replica writes the lines of a record one after the other.
    telling: set[str] = set()
    for each in lines:
        if in_text.search(each.line) or in_json in each.line:
            telling.add(each.replica_id)
        elif not each.line.startswith(INDENT):
            telling.discard(each.replica_id)
        if each.replica_id in telling:
            yield each


_SECONDS_MAX = 3600


@click.command(short_help="Record where the time of a replica goes.")
@click.argument("replica", metavar="REPLICA")
@click.option(
    "--seconds",
    type=click.IntRange(1, _SECONDS_MAX),
    default=10,
    show_default=True,
    help="How long it is looked at.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the flame graph goes. [default: REPLICA.svg]",
)
@click.option("--stacks", is_flag=True, help="Only print what each thread does now.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def profile(
    replica: str, seconds: int, output: Path | None, stacks: bool, controller: str | None
) -> None:
    """Record a flame graph of a REPLICA of this machine, which goes on serving meanwhile.

    py-spy does it, from outside of the process; it has to be installed, and the system has to let
    it look. `pyserve status` shows the names of replicas.
    """
    session = open_mesh(controller, "there is nothing to profile")
    try:
        found = _replica_of(read_status(session.client.status()), replica)
    finally:
        end_session()
    node = read_settings().node.node_id
    if found.node != node:
        raise CommandFailed(
            f"replica {replica} runs on {found.node}, and this is {node}; run the command there"
        )
    if stacks:
        _run("dump", "--pid", str(found.pid))
        return
    file = output or Path(f"{replica.replace('#', '-')}.svg")
    _run("record", "--pid", str(found.pid), "--duration", str(seconds), "--output", str(file))
    click.echo(f"pyserve: {file} shows where the time of {replica} went in {seconds} s")


def _replica_of(status: MeshStatus, name: str) -> ReplicaStatus:
    known = {
        replica.replica_id: replica
        for application in status.applications.values()
        for deployment in application.deployments.values()
        for replica in deployment.replicas
    }
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise CommandFailed(f"there is no replica {name!r}; there is: {there}")
    if not known[name].pid:
        raise CommandFailed(f"replica {name} has no process yet; wait until it has started")
    return known[name]


def _run(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise CommandFailed(
            f"py-spy is not installed: `pip install py-spy`, or run another profiler on process "
            f"{arguments[2]}"
        )
    done = subprocess.run([program, *arguments], check=False)
    if done.returncode:
        raise CommandFailed(
            f"py-spy has ended with status {done.returncode}, and says why above; where it may not "
            f"look at other processes, run it as their owner with CAP_SYS_PTRACE, or as root: "
            f"{program} {' '.join(arguments)}"
        )


_WIDTH = max(map(len, State))


@click.command(short_help="Look for what is wrong, and say what to do.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def doctor(as_json: bool, controller: str | None) -> None:
    """Look at this machine, the files of the mesh and each of its processes.

    Nothing is changed. It exits with 1 if something is wrong; each finding that is not fine has
    its remedy below it.
    """
    found = list(examine(settings_for(controller)))
    is_wrong = any(each.state is State.WRONG for each in found)
    if as_json:
        findings = [dataclasses.asdict(each) for each in found]
        click.echo(json.dumps({"ok": not is_wrong, "findings": findings}, indent=2))
    else:
        click.echo(as_text(found))
    sys.exit(1 if is_wrong else 0)


def as_text(found: Sequence[Finding]) -> str:
    """Return the findings as lines for people; what is wrong comes last, where it is seen."""
    order = [State.OK, State.NOTICE, State.WRONG]
    lines = []
    for each in sorted(found, key=lambda finding: order.index(finding.state)):
        word = each.state.upper() if each.state is State.WRONG else each.state
        lines.append(f"{word:<{_WIDTH}}  {each.subject}: {each.text}")
        if each.remedy:
            lines.append(f"{'':<{_WIDTH}}  -> {each.remedy}")
    count = sum(each.state is State.WRONG for each in found)
    lines.append(f"{count} of {len(found)} findings are wrong" if count else "nothing is wrong")
    return "\n".join(lines)
