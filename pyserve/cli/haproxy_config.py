"""``pyserve haproxy-config``: a configuration of HAProxy for the mesh, once or kept current."""

from __future__ import annotations

import asyncio
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from pyserve.aio.certificates import MeshTls, mesh_tls
from pyserve.cli.settings import PEM_FILE, Seconds, settings_for
from pyserve.config import MeshSettings, check_address
from pyserve.control.discovery import find_mesh, not_found
from pyserve.gateway.haproxy.follower import (
    Follower,
    MasterSignal,
    MasterSocket,
    Reload,
    replace_file,
)
from pyserve.gateway.haproxy.targets import HaproxyOptions, ServerTls

_PATH: dict[str, Any] = {"metavar": "PATH", "type": click.Path(dir_okay=False, path_type=Path)}


@click.command("haproxy-config", short_help="Write a configuration of HAProxy.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
@click.option("--output", **_PATH, help="Write to this file, in one step.")
@click.option("--watch", is_flag=True, help="Stay, and write anew whenever the mesh changes.")
@click.option("--master-socket", **_PATH, help="Reload HAProxy by its master's socket (-S).")
@click.option("--pid-file", **_PATH, help="Reload HAProxy by a signal to its master (-p).")
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(min_open=True),
    default=1.0,
    show_default=True,
    help="Shortest time between two reloads, in seconds.",
)
@click.option(
    "--bind",
    "binds",
    metavar="HOST:PORT",
    multiple=True,
    default=("127.0.0.1:8080",),
    show_default=True,
    help="Where HAProxy listens; may be repeated.",
)
@click.option("--bind-pem", **PEM_FILE, help="Certificate and key for its clients: it speaks TLS.")
@click.option("--server-ca", **PEM_FILE, help="Roots of the mesh's certificates.")
@click.option("--server-pem", **PEM_FILE, help="Certificate and key that HAProxy shows the mesh.")
@click.option("--server-name", metavar="NAME", default="", help="Name in the mesh's certificates.")
@click.option("--stats-socket", **_PATH, help="A socket for HAProxy's own commands (show stat).")
def haproxy_config(controller: str | None, **given: Any) -> None:
    """Print a configuration for HAProxy 2.6 or later that leads to the mesh as it is now.

    Limits, times and trusted proxies are those of this command's environment: run it with that of
    the mesh.
    """
    _check_use(given)
    settings = settings_for(controller)
    output: Path | None = given["output"]
    put = partial(_put, output, _reload(given))
    find = partial(find_mesh, settings)
    tls = mesh_tls(settings.node.tls)
    follower = Follower(
        find,
        settings.node,
        tls,
        _options(settings, given),
        put,
        interval_s=given["interval_s"],
    )
    if given["watch"]:
        asyncio.run(_watch(follower, tls))
        return
    if find() is None:
        raise not_found(
            settings.home, "start one with `pyserve run module:app`, or name one with --controller"
        )
    put(asyncio.run(follower.first()))


def _check_use(given: dict[str, Any]) -> None:
    """Refuse what has no meaning without something else."""
    if given["watch"] and given["output"] is None:
        raise click.UsageError("--watch keeps a file current; name it with --output FILE")
    if given["master_socket"] and given["pid_file"]:
        raise click.UsageError("give --master-socket or --pid-file; one of them reloads HAProxy")
    for option in ("master_socket", "pid_file"):
        if given[option] and given["output"] is None:
            raise click.UsageError(
                f"--{option.replace('_', '-')} reloads HAProxy, whose file has to be named with "
                f"--output FILE"
            )
    if (given["server_pem"] or given["server_name"]) and given["server_ca"] is None:
        raise click.UsageError("--server-pem and --server-name need --server-ca FILE")


def _options(settings: MeshSettings, given: dict[str, Any]) -> HaproxyOptions:
    def absolute(path: Path | None) -> Path | None:
        # HAProxy may run in another working directory.
        return None if path is None else path.absolute()

    ca_file = absolute(given["server_ca"])
    return HaproxyOptions(
        binds=tuple(_bind(each) for each in given["binds"]),
        bind_pem=absolute(given["bind_pem"]),
        ingress=settings.ingress,
        tls=None
        if ca_file is None
        else ServerTls(
            ca_file=ca_file,
            pem_file=absolute(given["server_pem"]),
            server_name=given["server_name"],
        ),
        direct_speaks_tls=settings.node.tls is not None,
        stats_socket=absolute(given["stats_socket"]),
    )


def _bind(text: str) -> str:
    """Check an address; ``*`` is every address of the machine.

    Raises:
        OptionError: It cannot be one.
    """
    if text.startswith("*:"):
        return "*" + _bind(f"any{text[1:]}").removeprefix("any")
    if text.endswith(":0"):
        raise click.UsageError("--bind: HAProxy picks no port; name one")
    return check_address("--bind", text)


def _reload(given: dict[str, Any]) -> Reload | None:
    if given["master_socket"] is not None:
        return MasterSocket(given["master_socket"])
    return None if given["pid_file"] is None else MasterSignal(given["pid_file"])


def _put(output: Path | None, reload: Reload | None, text: str) -> None:
    """Write a configuration and let HAProxy read it.

    Raises:
        MeshError: The file cannot be written, or HAProxy cannot be told.
    """
    if output is None:
        click.echo(text, nl=False)
        return
    is_other = replace_file(output, text)
    if reload is not None:
        reload()
    done = ("written" if is_other else "as it was") + (", reloaded" if reload is not None else "")
    sys.stderr.write(f"pyserve: {output}: {done}\n")


async def _watch(follower: Follower, tls: MeshTls | None) -> None:
    """Follow the mesh until a signal comes."""
    task = asyncio.ensure_future(follower.run())
    renewal = None if tls is None else asyncio.ensure_future(tls.follow())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        pass
    finally:
        if renewal is not None:
            renewal.cancel()
