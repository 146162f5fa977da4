"""What a caller may not see is answered as what is not there: by all protocols, and as fast."""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import socket
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hpack import Decoder

from benchmarks.hostile import http2
from benchmarks.hostile.http2 import END_HEADERS, END_STREAM, Kind, frame, frames_in, greeting
from tests.mesh.security.clients import TIMEOUT_S, bearer
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

TOKEN = "a-token-for-the-echo-service"
ELSEWHERE = "a-token-for-another-application"
_ROUNDS_MAX = 5
RULES = f"""
rules:
  - name: echo
    paths: ["/services.echo.Echo/*"]
    tokens: ["sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"]
  - name: all of an application that is not there
    paths: [/**]
    applications: [another]
    tokens: ["sha256:{hashlib.sha256(ELSEWHERE.encode()).hexdigest()}"]
"""
THINGS, ECHO = "/things.v1.Things", "/services.echo.Echo"
# Paths that exist, and paths that do not but could.
PAIRS = [
    (f"{THINGS}/Echo", f"{THINGS}/Ecko"),
    (f"{THINGS}/Get", "/things.v2.Things/Get"),
    ("/v1/echo", "/v1/ecko"),
    ("/v1/things", "/v1/thongs"),
    ("/v1/things/a", "/v1/thongs/a"),
    ("/shop", "/shap"),
    ("/shop/a", "/shap/a"),
    ("/default.Things/Echo", "/default.Thongs/Echo"),
    ("/-/routes", "/-/router"),
    ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Chock"),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1.Other/Info"),
]
MESSAGE = b"\0\0\0\0\0"
VERSION = ("connect-protocol-version", "1")
PREFLIGHT = (("origin", "https://page.example"), ("access-control-request-method", "PUT"))
# In this order they are about the request itself, not about where it goes.
VOLATILE = re.compile(rb"^date: .*\r\n", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class Ask:
    """A request without its path."""

    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    query: str = ""
    versions: tuple[int, ...] = (1, 2)
    code: bytes | None = None
    status: Mapping[str, int] = field(default_factory=lambda: {"": 401, TOKEN: 403, ELSEWHERE: 403})


def typed(content_type: str, *headers: tuple[str, str], body: bytes = b"{}", **more: Any) -> Ask:
    return Ask(headers=(("content-type", content_type), *headers), body=body, **more)


OK = {"": 200, TOKEN: 200, ELSEWHERE: 200}
ASKS = {
    "grpc": typed("application/grpc", ("te", "trailers"), body=MESSAGE, versions=(2,), status=OK),
    "grpc by get": Ask("GET", (("content-type", "application/grpc"),), versions=(2,), status=OK),
    "grpc-web": typed("application/grpc-web+proto", body=MESSAGE, status=OK),
    "grpc-web-text": typed("application/grpc-web-text", body=b"AAAAAAA=", status=OK),
    "grpc-web of a page": typed(
        "application/grpc-web", ("origin", "https://page.example"), body=MESSAGE, status=OK
    ),
    "connect": typed("application/json", VERSION),
    "connect in protobuf": typed("application/proto", body=b""),
    "connect of a page": typed("application/json", VERSION, ("origin", "https://page.example")),
    "connect streams": typed("application/connect+json", body=b"\0\0\0\0\2{}", status=OK),
    "connect streams in protobuf": typed("application/connect+proto", body=MESSAGE, status=OK),
    "connect by get": Ask("GET", query="?connect=v1&encoding=json&message=%7B%7D"),
    "connect of another version": typed("application/json", (VERSION[0], "9")),
    "json": typed("application/json"),
    "malformed json": typed("application/json", body=b"{"),
    "wrong compression": typed("application/json", ("content-encoding", "br")),
    "too large": typed("application/json", ("x-large", "1"), body=b" " * (5 << 20)),
    "a wrong timeout": typed("application/json", ("connect-timeout-ms", "x")),
    "a form": typed("application/x-www-form-urlencoded", body=b"a=b"),
    "no content type": Ask(),
    "get": Ask("GET"),
    "get with a field": Ask("GET", query="?name=a&count=x"),
    "head": Ask("HEAD"),
    "put": Ask("PUT", (("content-type", "application/json"),), b"{}"),
    "delete": Ask("DELETE"),
    "options": Ask("OPTIONS"),
    "preflight": Ask("OPTIONS", PREFLIGHT, status={"": 204, TOKEN: 204, ELSEWHERE: 204}),
    "another application's": typed("application/json", ("application", "default")),
    "explained": typed("application/json", ("x-pyserve-explain", "1")),
    "websocket": Ask(
        "GET",
        (
            ("connection", "upgrade, close"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ),
        versions=(1,),
    ),
    "websocket of http2": Ask(
        "CONNECT", ((":protocol", "websocket"), ("sec-websocket-version", "13")), versions=(2,)
    ),
    "a broken websocket": Ask(
        "GET", (("connection", "upgrade, close"), ("upgrade", "websocket")), versions=(1,)
    ),
}
CASES = [(name, version) for name, ask in ASKS.items() for version in ask.versions]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    rules = tmp_path_factory.mktemp("rules") / "access.yaml"
    with guarded_by(rules, RULES) as mesh:
        yield mesh


def guarded_by(rules: Path, text: str) -> Any:
    rules.write_text(text)
    return running_mesh(
        "tests.mesh.security.apps:shop",
        *("--route-prefix", "/shop"),
        environment={"PYSERVE_ACCESS_FILE": str(rules)},
    )


def connect(mesh: RunningMesh) -> socket.socket:
    host, _, port = mesh.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def headers_of(ask: Ask, token: str) -> list[tuple[str, str]]:
    return [*ask.headers, ("x-request-id", "same"), *bearer(token or None)]


def over_http1(mesh: RunningMesh, ask: Ask, path: str, token: str) -> tuple[int, bytes]:
    """Return status and all bytes of the answer, without its date."""
    lines = [f"{ask.method} {path}{ask.query} HTTP/1.1", "host: h"]
    lines += [f"{name}: {value}" for name, value in headers_of(ask, token)]
    if ask.body:
        lines.append(f"content-length: {len(ask.body)}")
    if "upgrade" not in dict(ask.headers):
        lines.append("connection: close")
    received = b""
    with connect(mesh) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        # It may have answered, and take no more of the body; or close with some of it unread.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(ask.body)
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                received += piece
    return int(received.split()[1]), VOLATILE.sub(b"", received)


def over_http2(mesh: RunningMesh, ask: Ask, path: str, token: str) -> tuple[int, object]:
    """Return status and all of the answer, without its date."""
    block = http2.block(ask.method, path + ask.query, headers_of(ask, token))
    flags = END_HEADERS | (0 if ask.body else END_STREAM)
    sent = greeting() + frame(Kind.HEADERS, flags, 1, block)
    # No more than the window; the rest of a body that is too large may stay away.
    pieces = [ask.body[at : at + 16_000] for at in range(0, min(len(ask.body), 60_000), 16_000)]
    for index, piece in enumerate(pieces):
        sent += frame(Kind.DATA, END_STREAM if index == len(pieces) - 1 else 0, 1, piece)
    received = b""
    with connect(mesh) as connection:
        connection.sendall(sent)
        while not _has_ended(received):
            piece = connection.recv(65_536)
            assert piece, received
            received += piece
    decoder, answer, status = Decoder(), [], 0
    for kind, ended, stream_id, payload in frames_in(received):
        if stream_id != 1 or kind not in (Kind.HEADERS, Kind.DATA):
            continue
        content: object = payload
        if kind == Kind.HEADERS:
            pairs: list[tuple[str, str]] = [
                (str(name), str(value)) for name, value in decoder.decode(payload)
            ]
            status = status or int(dict(pairs)[":status"])
            content = [pair for pair in pairs if pair[0] != "date"]
        answer.append((kind, ended, content))
    return status, answer


def _has_ended(received: bytes) -> bool:
    return any(
        (stream_id == 1 and kind in (Kind.HEADERS, Kind.DATA) and bool(flags & END_STREAM))
        or kind == Kind.GOAWAY
        or (stream_id == 1 and kind == Kind.RST_STREAM)
        for kind, flags, stream_id, _ in frames_in(received)
    )


@pytest.mark.parametrize(
    "token",
    ["", TOKEN, ELSEWHERE],
    ids=["anonymous", "with a token for another", "with one for another application"],
)
@pytest.mark.parametrize(("name", "version"), CASES)
def test_what_is_there_is_answered_as_what_is_not(
    mesh: RunningMesh, name: str, version: int, token: str
) -> None:
    ask = ASKS[name]
    answer_to = over_http1 if version == 1 else over_http2
    answers = [answer_to(mesh, ask, path, token) for pair in PAIRS for path in pair]

    for answer, path in zip(answers, [path for pair in PAIRS for path in pair], strict=True):
        if path.startswith("/-/") and name == "preflight":
            continue  # These two are no secret, and no page calls them.
        assert answers[0] == answer, path
    assert ask.status[token] == answers[0][0]


def test_refusals_of_all_protocols_are_written_down(mesh: RunningMesh) -> None:
    missing = {
        f"/things.v1.Things/Audited{number}": (name, version)
        for number, (name, version) in enumerate(CASES)
        if name != "preflight"
    }

    def are_written() -> bool:
        # Ten lines a second are written, so those that were left out are asked for again.
        for path, (name, version) in missing.items():
            (over_http1 if version == 1 else over_http2)(mesh, ASKS[name], path, "")
        output = mesh.output()
        for path in [path for path in missing if path in output]:
            del missing[path]
        return not missing

    wait_until(are_written, TIMEOUT_S, "the refusals of all protocols are written down")


def test_proposals_name_what_the_caller_may_call(mesh: RunningMesh, tmp_path: Path) -> None:
    """A rule for services that are not there does not tell which ones are."""
    rules = RULES.replace(
        '"/services.echo.Echo/*"', '"/services.echo.Echo/*", "/things.v1.Thingz/*"'
    )
    json = {"content-type": "application/json", **dict(bearer(TOKEN))}
    with guarded_by(tmp_path / "access.yaml", rules) as other:
        base = f"http://{other.address}"
        known = httpx.post(f"{base}{ECHO}/Ecko", content=b"{}", headers=json, timeout=TIMEOUT_S)
        listed = httpx.post(f"{base}{ECHO}/Xyz", content=b"{}", headers=json, timeout=TIMEOUT_S)
        unknown = [
            httpx.request(
                method,
                f"{base}/things.v1.Thingz/Echo",
                headers=headers,
                content=body,
                timeout=TIMEOUT_S,
            )
            for method in ("GET", "POST")
            for headers, body in ((json, b"{}"), (dict(bearer(TOKEN)), b""))
        ]

    assert (404, True) == (known.status_code, f"did you mean {ECHO}/Echo?" in known.text)
    assert (404, True) == (listed.status_code, "its service has" in listed.text)
    for answer in unknown:
        assert 404 == answer.status_code
        assert "Things/" not in answer.text


def test_health_says_nothing_about_names_to_those_it_is_not_open_to(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    """``open: [health]`` lets everybody ask about one service, and nobody list them."""
    ask = ASKS["connect"]
    with guarded_by(tmp_path / "access.yaml", "open: [health]\n") as other:
        listed = over_http1(other, ask, "/grpc.health.v1.Health/List", "")
        missing = over_http1(other, ask, "/grpc.health.v1.Health/Missing", "")
        healthz = over_http1(other, Ask("GET"), "/-/healthz", "")
        checked = over_http2(other, ASKS["grpc"], "/grpc.health.v1.Health/Check", "")

    assert (listed, 401) == (missing, listed[0])
    assert 200 == healthz[0]
    assert len(checked[1]) > 1, "an answer with a message"  # type: ignore[arg-type]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("method", "paths"),
    [("POST", PAIRS[0]), ("POST", PAIRS[1]), ("POST", PAIRS[2]), ("GET", PAIRS[4])],
)
def test_the_time_tells_nothing(mesh: RunningMesh, method: str, paths: tuple[str, str]) -> None:
    """Medians of requests in any order; a look-up with a text about names takes several times it.

    What the names make of the time they make of it each time; what else the machine does, it does
    to one of them now and to the other then.
    """
    head = "host: h\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    requests = [f"{method} {path} HTTP/1.1\r\n{head}".encode() for path in paths]
    with connect(mesh) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        differences: list[float] = []
        while len(differences) < _ROUNDS_MAX and min(differences, default=1.0) > 0.15:
            there, missing = medians(connection, requests)
            differences.append(abs(there - missing) / max(there, missing))
    assert min(differences) <= 0.15, differences


def medians(connection: socket.socket, requests: list[bytes]) -> list[float]:
    """Return how long each of the requests takes to be refused, in seconds."""
    times: list[list[float]] = [[] for _ in requests]
    order = random.Random(7)
    for _ in range(1500):
        for place in order.sample(range(len(requests)), len(requests)):
            begun = time.perf_counter()
            connection.sendall(requests[place])
            received = connection.recv(65_536)
            times[place].append(time.perf_counter() - begun)
            assert received.startswith(b"HTTP/1.1 401 "), received
    return [statistics.median(taken) for taken in times]
