"""``pyserve viewing-key``: what a Prometheus, or a person, shows in place of the mesh token."""

from __future__ import annotations

from pathlib import Path

import click

from pyserve.admin.access import viewing_key as key_of
from pyserve.config import MeshSettings, read_settings
from pyserve.control.discovery import not_found, read_record
from pyserve.control.tokens import read_token
from pyserve.errors import MeshError

_MODE = 0o600


@click.command("viewing-key", short_help="Print the key that lets its owner look.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this file, which only this user may read.",
)
def viewing_key(output: Path | None) -> None:
    """Print the key that admin servers take: metrics and the page, and nothing that changes a mesh.

    It is made of the mesh token, which PYSERVE_TOKEN_FILE names, or which the mesh has that runs in
    PYSERVE_HOME, and changes with it. Nobody comes from the key to the token.
    """
    key = key_of(_token(read_settings()))
    if output is None:
        click.echo(key)
    else:
        _write(output, key)


def _token(settings: MeshSettings) -> bytes:
    if settings.token_file is not None:
        return read_token(settings.token_file, "PYSERVE_TOKEN_FILE")
    record = read_record(settings.home)
    if record is None:
        raise not_found(settings.home, "start one, or set PYSERVE_TOKEN_FILE to its token's file")
    return read_token(Path(record.token_file))


def _write(path: Path, key: str) -> None:
    try:
        path.touch(mode=_MODE)
        path.chmod(_MODE)
        path.write_text(f"{key}\n")
    except OSError as error:
        raise MeshError(
            f"--output {path} cannot be written: {error.strerror}; name a file in a folder that "
            f"this user may write to"
        ) from error
