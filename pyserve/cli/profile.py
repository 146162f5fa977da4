"""``pyserve profile``: where the time of a replica goes, as py-spy sees it from outside."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click

from pyserve.cli.commands import CommandFailed
from pyserve.cli.settings import open_mesh
from pyserve.config import read_settings
from pyserve.driver.session import end_session
from pyserve.driver.status import MeshStatus, ReplicaStatus, read_status

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
