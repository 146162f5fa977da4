"""The admin server of a mesh, as commands ask it: JSON over HTTP, and events as they come.

``pyserve viewing-key`` prints what a Prometheus, or a person, shows it in place of the mesh token.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyserve.admin.access import viewing_key as key_of
from pyserve.cli.commands import CommandFailed
from pyserve.cli.page import speaks_tls
from pyserve.config import MeshSettings, read_settings
from pyserve.control.discovery import not_found, read_record
from pyserve.control.home import read_token
from pyserve.errors import MeshError

if TYPE_CHECKING:
    from pyserve.config.tls import TlsFiles
    from pyserve.driver.session import Session


# Two looks take a second, and the processes that are asked one more each.
_ANSWER_TIMEOUT_S = 15.0
_OK = 200
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Found:
    """The data at a path of the admin server.

    Attributes:
        data: It; ``None``: nothing is there.
        refusal: Why; "": it is there.
    """

    data: Any
    refusal: str = ""

    @property
    def is_there(self) -> bool:
        """Say whether there is something."""
        return not self.refusal


class AdminClient:
    """Asks one admin server.

    Args:
        address: ``host:port``.
        token: Of the mesh; only what may look is shown of it.
        tls: How to know the server; ``None``: it speaks plain HTTP.
    """

    def __init__(self, address: str, token: bytes, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        host, _, port = address.rpartition(":")
        self._address = address
        self._host, self._port = host.strip("[]"), int(port)
        # Not the token: the server may have ended, and somebody else have taken its port.
        self._headers = {"authorization": f"Bearer {key_of(token)}"}

    def read(self, path: str) -> Found:
        """Return what is there, or why nothing is.

        Raises:
            CommandFailed: The server does not answer, or refuses.
        """
        with self._answer(path) as answer:
            if answer.status == _NOT_FOUND:
                return Found(None, _words(answer))
            return Found(json.loads(answer.read()))

    def follow(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield events, each with its name and what it carries, until the server ends.

        Raises:
            CommandFailed: The server does not answer, or refuses.
        """
        with self._answer(path) as answer:
            name = "message"
            while line := answer.readline():
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    yield name, json.loads(value)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_ANSWER_TIMEOUT_S, context=self._tls
        )

    @contextmanager
    def _answer(self, path: str) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection()
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status not in (_OK, _NOT_FOUND):
                raise CommandFailed(f"{self._address}{path}: {_words(answer)}")
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(
                f"the admin server at {self._address} does not answer: {error}; look with "
                f"`pyserve status` whether the mesh runs"
            ) from error
        finally:
            connection.close()


def find_admins(session: Session) -> list[AdminClient]:
    """Return clients of the admin servers of a mesh's ingresses, at least one.

    Raises:
        CommandFailed: There is none.
    """
    # One that has gone listens nowhere.
    shown = [each for each in session.client.status().ingresses if each.admin and each.addresses]
    tls = tls_context(read_settings().security.tls) if any(map(speaks_tls, shown)) else None
    found = [
        AdminClient(each.admin, session.address.token, tls if speaks_tls(each) else None)
        for each in shown
    ]
    if not found:
        raise CommandFailed(
            "no ingress of this mesh has an admin server; start one with `pyserve ingress`, and "
            "see PYSERVE_METRICS_PORT"
        )
    return found


def tls_context(files: TlsFiles | None) -> ssl.SSLContext:
    """Return what knows an admin server by the system's roots, or by the ingress's own files."""
    context = ssl.create_default_context()
    # A certificate that nobody else has signed is its own root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for file in () if files is None else (files.cert_file, files.ca_file):
        if file is not None:
            context.load_verify_locations(file)
    return context


def _words(answer: http.client.HTTPResponse) -> str:
    text = answer.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status} {text.strip()}"


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
