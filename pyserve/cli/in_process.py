"""``pyserve run --in-process``: the replicas in this process, so that breakpoints work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pyserve.api.context import attach_local
from pyserve.driver.local import LocalMesh
from pyserve.driver.local.server import credentials_of, serve

if TYPE_CHECKING:
    import grpc

    from pyserve.api.graph import PackedApplication
    from pyserve.config.tls import TlsFiles
    from pyserve.driver.local import LocalApplication

# What is in flight at Ctrl-C gets as long as in a replica by default.
_GRACE_S = 20.0


def run_in_process(
    packed: PackedApplication, addresses: Sequence[str], tls: TlsFiles | None
) -> None:
    """Serve an application on the main thread until Ctrl-C; a second one stops at once.

    Args:
        packed: The application.
        addresses: ``host:port`` each, where gRPC is answered.
        tls: Certificates for it; ``None``: it is answered in plain text.

    Raises:
        DeploymentFailed: User code cannot be loaded, or raised.
        OptionError: The certificates cannot be read or used.
        UsageError: An address cannot be used.
    """
    asyncio.run(_run(packed, addresses, None if tls is None else credentials_of(tls)))


async def _run(
    packed: PackedApplication,
    addresses: Sequence[str],
    credentials: grpc.ServerCredentials | None,
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
        server, listening = await serve(application, addresses, credentials)
        _print_ready(application, listening, " --tls" if credentials is not None else "")
        await stop.wait()
        await server.stop(_GRACE_S)
    finally:
        await mesh.delete_all()
        attach_local(None)
        mesh.close()


def _on_signal(stop: asyncio.Event, number: int) -> None:
    click.echo("\npyserve: draining; a second Ctrl-C stops at once", err=True)
    stop.set()
    asyncio.get_running_loop().remove_signal_handler(number)


def _print_ready(application: LocalApplication, listening: Sequence[str], tls: str) -> None:
    where = " and ".join(listening)
    click.echo(f"pyserve: application {application.name!r} is ready at {where} (in this process)")
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
