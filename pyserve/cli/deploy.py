"""``pyserve deploy``: makes the applications of a file those that the mesh runs."""

from __future__ import annotations

import sys

import click

from pyserve.cli.applications import file_of, ingress_options, load_request
from pyserve.cli.asked import Asked, app_dir_option, as_asked, runtime_env_options
from pyserve.cli.commands import print_failures
from pyserve.cli.settings import open_mesh
from pyserve.driver.applying import Outcome, apply
from pyserve.driver.session import end_session, warn_of_names
from pyserve.driver.status import read_status


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
