"""What commands ask the admin server of a mesh: JSON over HTTP, and events as they come."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyserve.admin.access import viewing_key
from pyserve.cli.commands import CommandFailed
from pyserve.cli.page import speaks_tls
from pyserve.config import read_settings

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
        self._headers = {"authorization": f"Bearer {viewing_key(token)}"}

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
