"""``pyserve ingress``: one ingress as a process of its own."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from pyserve.cli.settings import listening_options, server_tls_files
from pyserve.config import read_settings
from pyserve.driver.session import warn_of_unknown_names
from pyserve.gateway.process import serve
from pyserve.observe.logs.formats import said


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
    # It reads them from the environment, as do ingresses that others start.
    server_tls_files(tls_cert, tls_key, tls_client_ca)
    encoding = read_settings().logs.encoding
    warn_of_unknown_names(
        lambda line: click.echo(said(line, encoding, "ingress", logging.WARNING), err=True)
    )
    sys.exit(serve(addresses))
