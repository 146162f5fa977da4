"""What ``pyserve doctor`` finds about the processes of a mesh that runs.

Who answers, with which version and clock, and how they are. A finding says how one thing is that
was looked at, and what to do.
"""

from __future__ import annotations

import enum
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any

import grpc

from pyserve.aio.certificates import date, lifetime_s, read_pem
from pyserve.aio.mesh_channel import proof
from pyserve.config import MeshSettings, is_loopback
from pyserve.config.tls import TlsFiles
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient, open_channel
from pyserve.errors import MeshError, OptionError
from pyserve.types import MeshAddress
from pyserve.version import version
from pyserve.wire.v1 import control_pb2

# A larger difference of clocks makes the order of log lines of two machines misleading. Arbitrary:
# the date of an HTTP answer is in whole seconds, and a replica's hello may take one to arrive.
_CLOCKS_APART_MAX_S = 2.0
# A controller on this machine answers in milliseconds; if not, its loop is blocked. Arbitrary.
_SLOW_S = 1.0
_PROBES_AT_ONCE = 16
_SERVING = ("RUNNING", "CORDONED", "SILENT", "UNHEALTHY")


def check_mesh(settings: MeshSettings) -> Iterator[Finding] | None:
    """Look at every process of the mesh; ``None`` when none runs."""
    try:
        address = find_mesh(settings)
    except MeshError as error:
        remedy = "copy the token file from where the mesh was started; see guide/staying.md"
        return iter([wrong("controller", str(error), remedy)])
    return None if address is None else _check(settings, address)


def _check(settings: MeshSettings, address: MeshAddress) -> Iterator[Finding]:
    client = ControlClient(address, settings.node.tls)
    began = time.time()
    try:
        reply = client.status()
    except MeshError as error:
        yield wrong(
            "controller",
            str(error),
            "look at its output or PYSERVE_LOG_DIR/controller.log; start it anew if it is gone",
        )
        return
    finally:
        client.close()
    took_s = time.time() - began
    where = f"{address.controller} (process {reply.controller_pid})"
    if took_s > _SLOW_S:
        text = f"{where} answers after {took_s:.1f} s: its event loop is held up"
        yield notice("controller", text, "give its machine more processors, or fewer tasks")
    else:
        yield ok("controller", f"{where} answers in {took_s * 1e3:.0f} ms")
    yield from _versions(reply)
    yield from _clocks(reply, began + took_s / 2)
    yield from _applications(reply)
    probes = [*_ingresses(reply), *_admins(reply), *_replicas(settings, address, reply)]
    with ThreadPoolExecutor(_PROBES_AT_ONCE) as pool:
        yield from chain.from_iterable(pool.map(Probe.run, probes))
    yield from (notice("mesh", line, "") for line in reply.notices)


def _versions(reply: control_pb2.StatusReply) -> Iterator[Finding]:
    ours = version()
    others = {("the controller", reply.version)}
    others |= {(f"the ingress on {each.node}", each.version) for each in reply.ingresses}
    others |= {(each.replica_id, each.version) for each in _all_replicas(reply)}
    different = sorted((who, what) for who, what in others if what and what != ours)
    for who, what in different:
        text = f"{who} runs pyserve {what}, this command {ours}"
        yield notice("versions", text, "finish the upgrade; see concepts/versions.md")
    if not different:
        yield ok("versions", f"every process runs pyserve {ours}")


def _clocks(reply: control_pb2.StatusReply, here: float) -> Iterator[Finding]:
    apart = {"the controller's clock": reply.now - here} if reply.now else {}
    apart |= {
        f"the clock of {each.replica_id} on {each.node}": each.clock_ahead_s
        for each in _all_replicas(reply)
    }
    late = {who: s for who, s in apart.items() if abs(s) > _CLOCKS_APART_MAX_S}
    for who, seconds in late.items():
        word = "ahead" if seconds > 0 else "behind"
        text = f"{who} is {abs(seconds):.0f} s {word}; times of logs and traces mislead"
        yield wrong("clocks", text, "let both machines follow the same time (chrony, timesyncd)")
    if not late:
        yield ok("clocks", f"{len(apart)} clocks agree to {_CLOCKS_APART_MAX_S:g} s")


def _applications(reply: control_pb2.StatusReply) -> Iterator[Finding]:
    for application in reply.applications:
        for each in application.deployments:
            name = f"{application.name}/{each.name}"
            remedy = f"`pyserve logs {each.name} --application {application.name}` says more"
            if each.state in ("UNHEALTHY", "DEPLOY_FAILED"):
                yield wrong("deployments", f"{name} is {each.state}: {each.message}", remedy)
            for ended in each.ended:
                how = f"{ended.replica_id} has ended: {ended.summary}"
                yield notice(
                    "replicas", how, f"`pyserve logs {ended.replica_id}` has its last lines"
                )
    if not reply.applications:
        yield ok("deployments", "no application is there")


def _ingresses(reply: control_pb2.StatusReply) -> Iterator[Probe]:
    speaks_tls = reply.ingress.speaks_tls
    for each in reply.ingresses:
        if each.state in ("STARTING", "HEALTHY", "UNHEALTHY"):
            for address in each.addresses:
                yield Probe(
                    f"ingress on {each.node} at {address}", ask_ingress, address, speaks_tls
                )


def _admins(reply: control_pb2.StatusReply) -> Iterator[Probe]:
    for address in {each.admin for each in reply.ingresses} | {reply.admin}:
        if address:
            yield Probe(f"metrics at {address}", ask_port, address)


def _replicas(
    settings: MeshSettings, address: MeshAddress, reply: control_pb2.StatusReply
) -> Iterator[Probe]:
    for each in _all_replicas(reply):
        if each.state not in _SERVING:
            continue
        doors = [each.endpoints.address]
        if each.node == settings.node.node_id and each.endpoints.unix_path:
            doors.append(f"unix:{each.endpoints.unix_path}")
        for target in doors:
            door = Door(target, address.token, settings.node.tls)
            yield Probe(f"{each.replica_id} at {target}", ask_replica, door)


def _all_replicas(reply: control_pb2.StatusReply) -> list[control_pb2.ReplicaStatus]:
    return [
        replica
        for application in reply.applications
        for deployment in application.deployments
        for replica in deployment.replicas
    ]


# Asks one process over one way, within a bound, and says what came of it.

_TIMEOUT_S = 3.0
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


class State(enum.StrEnum):
    """How it is: as it should be, worth to know, or wrong."""

    OK = "ok"
    NOTICE = "notice"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        subject: What was looked at.
        state: How it is.
        text: What was found.
        remedy: What to do; "" where there is nothing to do.
    """

    subject: str
    state: State
    text: str
    remedy: str = ""


def ok(subject: str, text: str) -> Finding:
    """Return a finding of what is as it should be."""
    return Finding(subject, State.OK, text)


def notice(subject: str, text: str, remedy: str) -> Finding:
    """Return a finding that may be meant so."""
    return Finding(subject, State.NOTICE, text, remedy)


def wrong(subject: str, text: str, remedy: str) -> Finding:
    """Return a finding of what does not work, or soon will not."""
    return Finding(subject, State.WRONG, text, remedy)
