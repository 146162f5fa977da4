"""``pyserve run --in-process``: the replicas in this process, so that breakpoints work."""

from __future__ import annotations

import asyncio
import bdb
import contextlib
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pyserve.api.context import attach_local
from pyserve.bridge import raise_descriptor_limit
from pyserve.config import read_settings
from pyserve.driver.local import LocalMesh
from pyserve.driver.local.server import LocalServer
from pyserve.gateway import IngressSecurity
from pyserve.observe.logs.sink import log_to_standard_error
from pyserve.observe.uncaught import log_uncaught

if TYPE_CHECKING:
    from pyserve.api.graph import PackedApplication
    from pyserve.config.tls import TlsFiles
    from pyserve.driver.local import LocalApplication

# At Ctrl-C, calls in flight get as long as in a replica by default.
_GRACE_S = 20.0


def run_in_process(
    packed: PackedApplication, addresses: Sequence[str], tls: TlsFiles | None
) -> None:
    """Serve an application on the main thread until Ctrl-C; a second one stops at once.

    Args:
        packed: The application.
        addresses: ``host:port`` each, where gRPC and plain HTTP are answered.
        tls: Certificates for it; ``None``: those of the environment, if there are any.

    Raises:
        DeploymentFailed: User code cannot be loaded, or raised.
        MeshError: An address cannot be used.
        OptionError: The certificates or the access rules cannot be read or used.
    """
    # Before the ingress computes how many clients it has room for.
    raise_descriptor_limit()
    settings = read_settings()
    log_to_standard_error(encoding=settings.logs.encoding)
    log_uncaught()
    security = IngressSecurity(replace(settings.security, tls=tls or settings.security.tls))
    # After a breakpoint, Ctrl-C is the debugger's, which opens where this process waits: a user
    # who quits it there wants the end.
    with contextlib.suppress(bdb.BdbQuit):
        asyncio.run(_run(packed, addresses, security))


async def _run(
    packed: PackedApplication, addresses: Sequence[str], security: IngressSecurity
) -> None:
    mesh = LocalMesh(lambda: None)
    attach_local(mesh)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop, number)
    try:
        await mesh.deploy(packed)
        application = mesh.applications[packed.name]
        server = await LocalServer.start(mesh, application, addresses, security=security)
        _print_ready(application, server, is_tls=security.tls is not None)
        await stop.wait()
        await server.stop(_GRACE_S)
    finally:
        await mesh.delete_all()
        attach_local(None)
        mesh.close()


def _on_signal(stop: asyncio.Event, number: int) -> None:
    stop.set()
    asyncio.get_running_loop().remove_signal_handler(number)
    with contextlib.suppress(OSError):  # Whoever reads may have gone.
        click.echo("\npyserve: draining; a second Ctrl-C stops at once", err=True)


def _print_ready(application: LocalApplication, server: LocalServer, *, is_tls: bool) -> None:
    where = " and ".join(server.addresses)
    click.echo(f"pyserve: application {application.name!r} is ready at {where} (in this process)")
    if server.takes_http:
        scheme = "https" if is_tls else "http"
        click.echo(f"pyserve: plain HTTP at {scheme}://{server.addresses[0]}/")
    tls = " --tls" if is_tls else ""
    for replica in application.replicas.values():
        wanted = replica.loaded.options.initial_num_replicas
        if wanted > 1:
            name = replica.context.deployment
            click.echo(f"pyserve: {name} wants {wanted} replicas; one runs here", err=True)
        for service in replica.loaded.services:
            click.echo(
                f"pyserve: serving {service.name}; try `pyserve call{tls} {service.name}/METHOD "
                f"key=value`"
            )
