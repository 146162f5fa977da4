"""``pyserve start``: a mesh that stays, in the foreground; ``pyserve ingress``: one ingress.

The latter is a process of its own, of a mesh that runs elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from functools import partial
from pathlib import Path

import click

from pyserve.cli.settings import (
    access_log_option,
    launcher_options,
    listening_options,
    server_tls_files,
)
from pyserve.config import (
    MeshSettings,
    ProxyLocation,
    check_address,
    default_addresses,
    read_settings,
)
from pyserve.config.environment import use_launcher
from pyserve.config.launchers import LauncherConfig
from pyserve.driver.session import warn_of_names, warn_of_unknown_names
from pyserve.errors import OptionError
from pyserve.installed import check
from pyserve.launch.supervisor import MeshPlan, Supervisor
from pyserve.observe.logs.formats import said

# Of its lines in JSON.
_COMPONENT = "supervisor"


@click.command(short_help="Run a mesh that stays.")
@listening_options
@click.option("--no-ingress", is_flag=True, help="Run the controller alone.")
@launcher_options
@access_log_option
@click.option("--development", is_flag=True, help="Tell clients the texts of exceptions.")
def start(
    addresses: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    no_ingress: bool,
    development: bool,
    launcher: LauncherConfig | None,
) -> None:
    """Run a controller and an ingress until SIGTERM, Ctrl-C or `pyserve shutdown`.

    Each is a process of its own, and is started again when it dies. Applications come by
    `pyserve run` or by `pyserve.run` of other processes. The controller listens at the TCP address
    in PYSERVE_CONTROLLER too, if that is set, for processes on other machines.
    """
    for address in addresses:
        check_address("--address", address)
    if no_ingress and (addresses or tls_cert or tls_key or tls_client_ca):
        raise click.UsageError(
            "--no-ingress runs the controller alone, which does not listen for clients; leave out "
            "it, or --address and --tls-*"
        )
    # The ingress reads them from the environment.
    server_tls_files(tls_cert, tls_key, tls_client_ca)
    if launcher is not None:
        use_launcher(launcher)
    settings = read_settings()
    encoding = settings.logs.encoding
    warn_of_names(
        lambda line: click.echo(said(line, encoding, _COMPONENT, logging.WARNING), err=True)
    )
    _check_controller(settings)
    check()
    has_none = no_ingress or settings.ingress.location is ProxyLocation.Disabled
    plan = MeshPlan(
        addresses=() if has_none else addresses or default_addresses(settings),
        development=development or settings.development,
        settings=settings,
    )
    sys.exit(asyncio.run(Supervisor(plan, partial(_say, encoding)).run()))


def _check_controller(settings: MeshSettings) -> None:
    if settings.controller is not None and settings.controller.startswith("unix:"):
        raise OptionError(
            f"PYSERVE_CONTROLLER={settings.controller} names a controller to join, while `pyserve "
            f"start` starts one whose socket lies below PYSERVE_HOME; take the variable away, or "
            f"give it the HOST:PORT where other machines shall find this controller"
        )


def _say(encoding: str, line: str) -> None:
    # The reader may be gone, which does not end the mesh.
    with contextlib.suppress(OSError):
        click.echo(said(line, encoding, _COMPONENT))


@click.command(short_help="Run an ingress of a mesh that runs elsewhere.")
@listening_options
def ingress(
    addresses: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
) -> None:
    """Run an ingress, and nothing else, until SIGTERM or Ctrl-C.

    It follows the controller that PYSERVE_CONTROLLER names, with the token in PYSERVE_TOKEN_FILE,
    or the one that runs in PYSERVE_HOME; it waits for one that is not there yet, and serves on
    with what it knows when the controller goes.
    """
    # Not at the head of the module: the supervisor of `start` has no use for it.
    from pyserve.gateway.process import serve

    # It reads them from the environment, as do ingresses that others start.
    server_tls_files(tls_cert, tls_key, tls_client_ca)
    encoding = read_settings().logs.encoding
    warn_of_unknown_names(
        lambda line: click.echo(said(line, encoding, "ingress", logging.WARNING), err=True)
    )
    sys.exit(serve(addresses))
