"""Which mesh a command speaks to, and what several commands' options have in common."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyserve.aio.certificates import check_server_files
from pyserve.config import MeshSettings, check_address, read_settings
from pyserve.config.environment import use_access_log, use_tls_files
from pyserve.config.http import RoutePrefix, check_route_prefix
from pyserve.config.launchers import LauncherConfig
from pyserve.config.tls import TlsFiles, TlsOrigins
from pyserve.config.validation import SECONDS_MAX

if TYPE_CHECKING:
    from pyserve.driver.session import Session

# Of an option that names a file with certificates or a key.
PEM_FILE: dict[str, Any] = {
    "metavar": "FILE",
    "type": click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
}


prefix_option = click.option(
    "--route-prefix",
    metavar="PREFIX",
    help="Where plain HTTP reaches it; empty: nowhere. [default: / if no other application has it]",
)


def _use_access_log(
    _context: click.Context, _parameter: click.Parameter, value: bool | None
) -> None:
    if value is not None:
        use_access_log(is_on=value)


access_log_option = click.option(
    "--access-log/--no-access-log",
    default=None,
    expose_value=False,
    callback=_use_access_log,
    help="A line for each call, of a mesh that is started. [default: in files, up to 100 calls/s]",
)


def launcher_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``launcher``: what ``--launcher`` and its options say, or ``None``."""

    @click.option(
        "--launcher",
        metavar="NAME",
        help="What starts replicas: process, external, kubernetes, ray, or MODULE:ATTRIBUTE. "
        "[default: process]",
    )
    @click.option(
        "--ray-address", metavar="HOST:PORT", help="The cluster of --launcher ray. [default: auto]"
    )
    @click.option(
        "--launcher-option",
        "told",
        multiple=True,
        metavar="KEY=VALUE",
        help="What the launcher is told besides; may be repeated.",
    )
    @functools.wraps(command)
    def with_launcher(
        launcher: str | None, ray_address: str | None, told: Sequence[str], **others: Any
    ) -> None:
        if ray_address is not None and launcher != "ray":
            raise click.UsageError("--ray-address needs --launcher ray, whose cluster it names")
        options = told if ray_address is None else (*told, f"address={ray_address}")
        command(launcher=_read_launcher(launcher, options), **others)

    return with_launcher


def _read_launcher(name: str | None, told: Sequence[str]) -> LauncherConfig | None:
    from pyserve.cli.target import parse_arguments

    if name is not None:
        return LauncherConfig(name=name, options=parse_arguments(told))
    if told:
        raise click.UsageError("--launcher-option needs --launcher, which it is for")
    return None


def read_prefix(given: str | None) -> str | RoutePrefix | None:
    """Return what ``--route-prefix`` says.

    Raises:
        OptionError: It cannot be a prefix.
    """
    if given is None:
        return RoutePrefix.DEFAULT
    return check_route_prefix("--route-prefix", given) if given else None


def listening_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an ingress: ``addresses`` and three files of TLS."""
    for option in (
        click.option(
            "--tls-client-ca",
            **PEM_FILE,
            help="Roots of client certificates, which are required then.",
        ),
        click.option("--tls-key", **PEM_FILE, help="The certificate's private key, not encrypted."),
        click.option(
            "--tls-cert", **PEM_FILE, help="Speak TLS with this certificate and its issuers."
        ),
        click.option(
            "--address",
            "addresses",
            multiple=True,
            metavar="HOST:PORT",
            help="Where the ingress listens; port 0 picks one. [default: 127.0.0.1:8000 and "
            "[::1]:8000]",
        ),
    ):
        command = option(command)
    return command


class Seconds(click.FloatRange):
    """A time as an option's value, at least (or above) 0 and at most a year."""

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(min=0, max=SECONDS_MAX, min_open=min_open)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse NaN too: it compares as false with both bounds."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return found


def open_mesh(controller: str | None, advice: str) -> Session:
    """Return a session of the mesh that a command speaks to; the caller ends it.

    Args:
        controller: What ``--controller`` names.
        advice: What to do if no mesh runs.

    Raises:
        MeshNotFound: None does.
        OptionError: The address cannot be one.
    """
    # Commands that need no mesh start without these.
    from pyserve.control.discovery import not_found
    from pyserve.driver.session import await_session

    settings = settings_for(controller)
    session = await_session(settings)
    if session is None:
        raise not_found(settings.home, advice)
    return session


def settings_for(controller: str | None) -> MeshSettings:
    """Return the environment's settings, with the controller that an option names.

    Raises:
        OptionError: The address cannot be one.
    """
    settings = read_settings()
    if controller is None:
        return settings
    address = check_address("--controller", controller, unix=True)
    return replace(settings, controller=address, controller_is_of="--controller")


def server_tls_files(
    cert: Path | None, key: Path | None, client_ca: Path | None
) -> TlsFiles | None:
    """Return the certificates that the options name, with what variables say besides.

    They are tried here: later code knows only variables, and its errors would name those.
    """
    if cert is not None and key is not None:
        use_tls_files(TlsFiles(cert_file=cert, key_file=key, ca_file=client_ca))
        files = read_settings().security.tls
        assert files is not None, "two of its variables have just been set"
        ca_file = files.origins.ca_file if client_ca is None else "--tls-client-ca"
        origins = TlsOrigins(cert_file="--tls-cert", key_file="--tls-key", ca_file=ca_file)
        files = replace(files, origins=origins)
        check_server_files(files)
        return files
    given = {"--tls-cert": cert, "--tls-key": key, "--tls-client-ca": client_ca}
    names = [name for name, path in given.items() if path is not None]
    if names:
        raise click.UsageError(
            f"{' and '.join(names)} given, but TLS needs both --tls-cert and --tls-key"
        )
    return None
