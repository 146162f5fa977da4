"""Asks one process over one way, within a bound, and says what came of it."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import grpc

from pyserve.aio.certificates import date, lifetime_s, read_pem
from pyserve.aio.mesh_channel import proof
from pyserve.config import is_loopback
from pyserve.config.tls import TlsFiles
from pyserve.driver.client import open_channel
from pyserve.driver.doctor.findings import Finding, notice, ok, wrong
from pyserve.errors import OptionError

_TIMEOUT_S = 3.0
_CLOCKS_APART_MAX_S = 2.0
_DAYS_LOW = 14
_DAY_S = 86_400.0
# No server has this method: any answer shows that the event loop turns, and no user code runs.
_PATH = "/pyserve.doctor.Doctor/Ask"


@dataclass(frozen=True, slots=True)
class Door:
    """One way to a replica.

    Attributes:
        target: ``host:port`` or ``unix:path``.
        token: The mesh token.
        tls: Certificates, over TCP; ``None``: it speaks plainly.
    """

    target: str
    token: bytes
    tls: TlsFiles | None


class Probe:
    """A question to one process.

    Args:
        subject: Who is asked, and where.
        ask: Gets the subject and the arguments.
        arguments: Of the question.
    """

    def __init__(
        self, subject: str, ask: Callable[..., Iterator[Finding]], *arguments: Any
    ) -> None:
        self._subject = subject
        self._ask = ask
        self._arguments = arguments

    def run(self) -> list[Finding]:
        """Ask, and return what was found."""
        return list(self._ask(self._subject, *self._arguments))


def ask_ingress(subject: str, address: str, speaks_tls: bool) -> Iterator[Finding]:
    """Ask an ingress how it is, over HTTP; over TLS look at its certificate."""
    host, _, port = address.rpartition(":")
    try:
        connection = _connect(host.strip("[]"), int(port), speaks_tls)
        connection.connect()
        if speaks_tls:
            yield from _certificate(subject, connection, time.time())
        connection.request("GET", "/-/healthz")
        answer = connection.getresponse()
        text = answer.read(200).decode(errors="replace").strip()
        now = time.time()
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        remedy = "look at `pyserve status`, and at a firewall between here and there"
        yield wrong("ingresses", f"the {subject} does not answer: {reason}", remedy)
        return
    if answer.status == http.HTTPStatus.OK:
        yield ok("ingresses", f"the {subject} is healthy")
    else:
        said = f"the {subject} says {answer.status} {text[:100]!r}"
        yield wrong("ingresses", said, "`pyserve status` shows which deployment cannot serve")
    if (date := answer.getheader("date")) is not None:
        ahead_s = parsedate_to_datetime(date).timestamp() - now
        if abs(ahead_s) > _CLOCKS_APART_MAX_S:
            text = f"the clock of the {subject} is {ahead_s:+.0f} s from this one"
            yield wrong("clocks", text, "let both machines follow the same time (chrony)")


def _connect(host: str, port: int, speaks_tls: bool) -> http.client.HTTPConnection:
    if not speaks_tls:
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    # Only the server's own certificate is examined, regardless of who has signed it.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)


def _certificate(
    subject: str, connection: http.client.HTTPConnection, now: float
) -> Iterator[Finding]:
    peer = None
    if isinstance(connection.sock, ssl.SSLSocket):
        peer = connection.sock.getpeercert(binary_form=True)
    if peer is None:
        return
    begins_at, ends_at = lifetime_s(ssl.DER_cert_to_PEM_cert(peer).encode())
    days = int((ends_at - now) / _DAY_S)
    renewing = "put another certificate into the file that PYSERVE_TLS_CERT_FILE names"
    if not begins_at <= now < ends_at:
        text = f"the {subject} shows a certificate that is valid from {date(begins_at)} to"
        yield wrong("certificates", f"{text} {date(ends_at)}", renewing)
    elif days < _DAYS_LOW:
        text = f"the {subject} shows a certificate that is valid for {days} days yet"
        yield notice("certificates", text, renewing)
    else:
        yield ok("certificates", f"what the {subject} shows is valid for {days} days")


def ask_port(subject: str, address: str) -> Iterator[Finding]:
    """Look whether somebody listens."""
    if (problem := _unreachable(address)) is not None:
        remedy = "the log of the process there says why; or set PYSERVE_METRICS_PORT"
        yield wrong("ports", f"nobody shows {subject}: {problem}", remedy)
    else:
        yield ok("ports", f"{subject} are shown")


def ask_replica(subject: str, door: Door) -> Iterator[Finding]:
    """Ask a replica for a method that nobody has; its event loop has to turn for the answer."""
    is_unix = door.target.startswith("unix:")
    if (problem := _unreachable(door.target)) is not None:
        remedy = (
            "let this user open the socket, and do not clean the run directory of a mesh"
            if is_unix
            else "let the port through between nodes, or look at PYSERVE_ADVERTISE_HOST there"
        )
        yield wrong("replicas", f"{subject} cannot be reached: {problem}", remedy)
        return
    host = door.target.rpartition(":")[0]
    if not (is_unix or door.tls is not None or is_loopback(host)):
        # The token would pass the network as it is.
        yield ok("replicas", f"{subject} takes connections")
        return
    try:
        code = _code_of(door)
    except OptionError as error:
        yield wrong("replicas", f"{subject} cannot be asked: {error}", "correct PYSERVE_MESH_TLS_*")
        return
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"{subject} takes connections and does not answer: its event loop is held"
        remedy = "its log has the code that holds it (PYSERVE_LOOP_STALL_S); put that on a thread"
        yield wrong("loops", text, remedy)
    elif code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED):
        yield ok("replicas", f"{subject} answers")
    elif code is grpc.StatusCode.UNAUTHENTICATED:
        text = f"{subject} refuses the mesh token"
        yield wrong("replicas", text, "give this command the token of that mesh")
    else:
        text = f"{subject} does not answer: {code.name}"
        yield wrong("replicas", text, "look at its log, and at PYSERVE_MESH_TLS_* of both sides")


def _unreachable(target: str) -> str | None:
    try:
        if target.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as found:
                found.settimeout(_TIMEOUT_S)
                found.connect(target.removeprefix("unix:"))
        else:
            host, _, port = target.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return None


def _code_of(door: Door) -> grpc.StatusCode:
    tls = None if door.target.startswith("unix:") else door.tls
    pem = None if tls is None else read_pem(tls)
    with open_channel(door.target, tls, pem) as channel:
        ask: Any = channel.unary_unary(_PATH)
        try:
            ask(b"", timeout=_TIMEOUT_S, metadata=proof(door.token))
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK
