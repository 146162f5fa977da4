"""The commands that say what a mesh runs: ``pyserve deploy``, and what changes or ends it.

- ``deploy`` makes the applications of a file those that the mesh runs; ``config`` prints what the
  files said that were deployed last.
- ``cordon`` and ``uncordon`` take replicas out of rotation, and back.
- ``delete`` drains and ends one application, ``shutdown`` the mesh.
"""

from __future__ import annotations

import difflib
import json
import sys

import click

from pyserve.cli.applications import file_of, ingress_options, load_request
from pyserve.cli.commands import CommandFailed, print_failures
from pyserve.cli.settings import Seconds, open_mesh
from pyserve.cli.target import Asked, app_dir_option, as_asked, runtime_env_options
from pyserve.config.control import SHUTDOWN_GRACE_S
from pyserve.driver.progress import Outcome, apply
from pyserve.driver.session import end_session, warn_of_names
from pyserve.driver.status import read_status
from pyserve.types import ApplicationName


@click.command(short_help="Make the applications of a file those that the mesh runs.")
@click.argument("target", metavar="FILE.yaml")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", help="Of an application that is given by its import path.")
@click.option("--route-prefix", metavar="PREFIX", help="Of such an application. [default: /]")
@app_dir_option
@runtime_env_options
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
@click.option("--no-wait", is_flag=True, help="Return when the mesh has taken the file.")
@as_asked
def deploy(asked: Asked, controller: str | None, no_wait: bool) -> None:
    """Make the applications of FILE.yaml those that the mesh runs.

    Applications that an earlier file had and this one lacks are deleted; deployments that are
    what they were stay as they are; the others are replaced, without a failed call. If one of the
    applications cannot be loaded, nothing changes. "-" reads the standard input, and
    MODULE:ATTRIBUTE stands for a file with that one application.
    """
    file = file_of(asked)
    session = open_mesh(controller, "start one with `pyserve start`, or name one by --controller")
    try:
        warn_of_names()
        options = ingress_options(file, asked.app_dir)
        request = load_request(file, asked.app_dir)
        client = session.client
        for line in options.differences(client, read_status(client.status()).addresses):
            click.echo(f"pyserve: warning: {line}; that takes a new mesh", err=True)
        outcome = apply(client, request, wait=not no_wait)
        options.set_timeout(client)
    except KeyboardInterrupt:
        click.echo("pyserve: what the mesh has taken goes on; see `pyserve status`", err=True)
        raise
    finally:
        end_session()
    if no_wait:
        click.echo("pyserve: the mesh has taken it; `pyserve status` says how far it is")
        return
    _print(outcome)
    if outcome.failed:
        sys.exit(1)


def _print(outcome: Outcome) -> None:
    where = " and ".join(outcome.addresses) or "no address"
    for each in outcome.deployed:
        state = "is unchanged" if each in outcome.unchanged else "is ready"
        click.echo(f"pyserve: application {each!r} {state} at {where}")
    for each in outcome.deleted:
        click.echo(f"pyserve: application {each!r} is deleted")
    print_failures(outcome.failed)


@click.command(short_help="Drain and end an application.")
@click.argument("application")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def delete(application: str, yes: bool, controller: str | None) -> None:
    """Let the calls of an application finish, then end its replicas.

    The next `pyserve deploy` of a file that has it brings it back.
    """
    session = open_mesh(controller, "there is nothing to delete")
    try:
        if not yes:
            click.confirm(f"Delete the application {application!r}?", abort=True, err=True)
        session.client.delete(ApplicationName(application))
    finally:
        end_session()
    click.echo(f"pyserve: application {application!r} is deleted")


@click.command(short_help="Drain and end the mesh.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
@click.option(
    "--grace",
    "grace_s",
    type=Seconds(),
    default=SHUTDOWN_GRACE_S,
    show_default=True,
    help="Seconds that calls in flight may take.",
)
@click.option(
    "-y", "--yes", is_flag=True, expose_value=False, help="As in Ray Serve; nobody is asked here."
)
def shutdown(controller: str | None, grace_s: float) -> None:
    """Let calls in flight finish, then end every process of the mesh."""
    session = open_mesh(controller, "there is nothing to shut down")
    try:
        session.shutdown(grace_s)
    finally:
        end_session()
    click.echo("pyserve: the mesh has ended")


_TARGET = click.argument("target", metavar="REPLICA|node:NAME")
_CONTROLLER = click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")


@click.command(short_help="Take a replica, or a node, out of rotation.")
@_TARGET
@_CONTROLLER
def cordon(target: str, controller: str | None) -> None:
    """Send no new calls to a replica, or to any replica of a node, and stop none.

    `pyserve status` shows their names.
    """
    _cordon(target, controller, undo=False)


@click.command(short_help="Take a cordoned replica, or node, back.")
@_TARGET
@_CONTROLLER
def uncordon(target: str, controller: str | None) -> None:
    """Send calls again to what was cordoned."""
    _cordon(target, controller, undo=True)


def _cordon(target: str, controller: str | None, *, undo: bool) -> None:
    session = open_mesh(controller, "there is nothing to cordon")
    try:
        reply = session.client.cordon(target, undo=undo)
    finally:
        end_session()
    where = "back in rotation" if undo else "out of rotation"
    for replica in reply.replicas:
        click.echo(f"pyserve: {replica} is {where}")
    if not reply.replicas:
        click.echo(f"pyserve: {target} changes nothing: all that it names is {where} already")
    for warning in reply.warnings:
        click.echo(f"pyserve: warning: {warning}", err=True)


@click.command(short_help="Print what was deployed from files.")
@click.option("--name", help="Of one application. [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def config(name: str | None, as_json: bool, controller: str | None) -> None:
    """Print, as a file that `pyserve deploy` takes, what was deployed from files.

    Applications of `pyserve run MODULE:ATTRIBUTE` and of programs came from none.
    """
    session = open_mesh(controller, "start one with `pyserve start`, or name one by --controller")
    try:
        reply = session.client.config()
    finally:
        end_session()
    declared = {each.application: json.loads(each.json) for each in reply.declarations}
    if name is not None:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(declared)}"
            hint = hint if declared else "none was deployed from a file"
            raise CommandFailed(f"no application {name!r} was deployed from a file; {hint}")
        declared = {name: declared[name]}
    content: dict[str, object] = {"applications": list(declared.values())}
    if reply.HasField("target_capacity"):
        content["target_capacity"] = reply.target_capacity
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    from pyserve.config.files import dump

    click.echo(dump(content), nl=False)
