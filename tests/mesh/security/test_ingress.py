"""The ingress behind TLS with client certificates, and its access rules."""

from __future__ import annotations

import datetime
import hashlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import status_of
from tests.mesh.security.clients import (
    TIMEOUT_S,
    bearer,
    code_of,
    echo,
    open_channel,
    served_serial,
    tls_context,
)
from tests.support.authority import Authority, Files, Leaf
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

ALICE = "spiffe://test/client/alice"
BOB = "spiffe://test/client/bob"
TOKEN = "a-token-of-sufficient-length"
FILE_TOKEN = "another-token-of-some-length"
# The bound of the requirement: a reload takes effect within it.
RELOAD_S = 5.0
RULES = f"""
open: [health, reflection]
rules:
  - name: echo for all clients
    paths: [/services.echo.Echo/Echo]
    identities: ["spiffe://test/client/*"]
  - name: everything for those with a token
    paths: ["/services.echo.Echo/Perform", "/services.echo.Echo/PerformStream"]
    identities: ["spiffe://test/client/*"]
    tokens:
      - "sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"
      - token_file: token
  - name: pages
    paths: [/pages/**]
    identities: ["spiffe://test/client/*"]
  - name: private pages
    paths: ["/private/**"]
    identities: ["spiffe://test/client/*"]
    tokens: ["sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"]
  - name: counts for alice
    paths: [/services.echo.Echo/Count]
    identities: [{ALICE}]
"""


@dataclass(frozen=True)
class Guarded:
    """A mesh, and what it takes to come in."""

    mesh: RunningMesh
    root: Authority
    issuer: Authority
    files: Files
    rules: Path
    alice: Leaf

    @property
    def address(self) -> str:
        """Where the ingress listens."""
        return self.mesh.address

    def channel(self, leaf: Leaf | None = None) -> grpc.Channel:
        """Return a channel of alice, or of another."""
        return open_channel(self.address, leaf or self.alice, self.root)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("security")
    root = Authority()
    issuer = Authority(root)
    files = Files(folder / "tls")
    files.write(issuer.issue("127.0.0.1"), root)
    rules = folder / "access.yaml"
    rules.write_text(RULES)
    (folder / "token").write_text(f"{FILE_TOKEN}\n")
    environment = {
        **files.environment("PYSERVE_TLS"),
        "PYSERVE_TLS_CLIENT_NAMES": "spiffe://test/client/*",
        "PYSERVE_ACCESS_FILE": str(rules),
    }
    with running_mesh("tests.mesh.security.apps:app", environment=environment) as mesh:
        yield Guarded(mesh, root, issuer, files, rules, issuer.issue(ALICE))


def test_a_client_with_a_certificate_gets_its_answer(guarded: Guarded) -> None:
    assert echo(guarded.address, guarded.alice, guarded.root) == b"hello"


def test_who_is_not_known_fails_the_handshake(guarded: Guarded) -> None:
    """No certificate, one of a stranger, an expired one, one with another name."""
    expired = guarded.issuer.issue(ALICE, lifetime=-datetime.timedelta(minutes=1))
    for leaf in (
        None,
        Authority().issue(ALICE),
        expired,
        guarded.issuer.issue("spiffe://test/server/alice"),
        guarded.issuer.issue("spiffe://test/client/alice/below"),
        guarded.issuer.issue("client.example.com"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            echo(guarded.address, leaf, guarded.root)
        assert code_of(caught.value) is grpc.StatusCode.UNAVAILABLE


def test_a_client_without_its_certificate_is_told_so_though_it_has_sent_a_request(
    guarded: Guarded,
) -> None:
    """In TLS 1.3 it learns what becomes of its certificate after its first bytes."""
    host, _, port = guarded.address.rpartition(":")
    context = tls_context(None, guarded.root)
    before = tls_failures(guarded.mesh)
    for _ in range(10):
        with (
            socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n")
            for number in range(40):
                secure.sendall(b"x-%d: %s\r\n" % (number, bytes(200)))
            with pytest.raises(ssl.SSLError, match="certificate required"):
                secure.recv(1)
    wait_until(lambda: tls_failures(guarded.mesh) == before + 10)


def tls_failures(mesh: RunningMesh) -> int:
    """Return how many handshakes the ingress has seen fail."""
    found = status_of({"PYSERVE_HOME": str(mesh.home)})["ingress"]["counts"]["tls_failures"]
    assert isinstance(found, int)
    return found


def test_a_client_does_not_take_a_server_of_strangers(guarded: Guarded) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        echo(guarded.address, guarded.alice, Authority())
    assert code_of(caught.value) is grpc.StatusCode.UNAVAILABLE


def test_a_plain_client_gets_nowhere(guarded: Guarded) -> None:
    with grpc.insecure_channel(guarded.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Echo(echo_pb2.EchoRequest(), timeout=TIMEOUT_S)
    assert code_of(caught.value) is grpc.StatusCode.UNAVAILABLE


def test_rules_tell_who_may_call_what(guarded: Guarded) -> None:
    """A missing token is UNAUTHENTICATED; a caller who is known and may not, PERMISSION_DENIED."""
    with guarded.channel() as channel, guarded.channel(guarded.issuer.issue(BOB)) as others:
        alice, bob = echo_pb2_grpc.EchoStub(channel), echo_pb2_grpc.EchoStub(others)
        assert alice.Count(echo_pb2.CountRequest(), timeout=TIMEOUT_S).replica_id
        request = echo_pb2.PerformRequest(payload=b"x")
        for token in (TOKEN, FILE_TOKEN):
            reply = alice.Perform(request, timeout=TIMEOUT_S, metadata=bearer(token))
            assert reply.payload == b"x"
        count, fork = echo_pb2.CountRequest(), echo_pb2.ForkRequest()
        missing: Any = channel.unary_unary("/services.echo.Missing/Method")
        unauthenticated, denied = (
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.PERMISSION_DENIED,
        )
        refused: list[tuple[Any, object, str | None, grpc.StatusCode]] = [
            (alice.Perform, request, None, unauthenticated),
            (alice.Perform, request, "wrong", unauthenticated),
            (bob.Count, count, None, denied),
            (bob.Count, count, TOKEN, denied),
            (alice.Fork, fork, TOKEN, denied),
            # What does not exist is not told apart from what is forbidden.
            (missing, b"", None, denied),
        ]
        for call, message, sent, expected in refused:
            with pytest.raises(grpc.RpcError) as caught:
                call(message, timeout=TIMEOUT_S, metadata=bearer(sent))
            assert code_of(caught.value) is expected


def test_the_token_reaches_the_application(guarded: Guarded) -> None:
    with guarded.channel() as channel:
        reply = echo_pb2_grpc.EchoStub(channel).Perform(
            echo_pb2.PerformRequest(describe=True), timeout=TIMEOUT_S, metadata=bearer(TOKEN)
        )
    sent = {item.key: item.value for item in reply.facts.metadata}
    assert sent["authorization"] == f"Bearer {TOKEN}".encode()


def test_health_and_reflection_are_left_open(guarded: Guarded) -> None:
    with guarded.channel(guarded.issuer.issue(BOB)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        reply = health.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        names = ProtoReflectionDescriptorDatabase(channel).get_services()
    assert "services.echo.Echo" in names


@pytest.mark.parametrize(("http2", "version"), [(False, "HTTP/1.1"), (True, "HTTP/2")])
def test_plain_http_meets_the_same_rules(guarded: Guarded, http2: bool, version: str) -> None:
    """The handshake agrees on the version; refusals are 401 and 403."""
    client = httpx.Client(
        base_url=f"https://{guarded.address}",
        verify=tls_context(guarded.alice, guarded.root),
        http1=not http2,
        http2=http2,
        timeout=TIMEOUT_S,
    )
    with client:
        page = client.get("/pages/of/alice?x=1")
        assert (200, "https /pages/of/alice") == (page.status_code, page.text)
        assert version == page.http_version
        assert client.get("/private/page", headers=dict(bearer(TOKEN))).status_code == 200
        missing = client.get("/private/page")
        assert missing.status_code == 401
        assert missing.headers["www-authenticate"] == "Bearer"
        for path in ("/elsewhere", "/-/routes", "/pages/%2e%2e/private/page", "//private/page"):
            assert client.get(path, headers=dict(bearer(TOKEN))).status_code == 403
        assert client.get("/-/healthz").status_code == 200
        # Escaped letters are the letters.
        assert client.get("/%70rivate/page").status_code == 401


def test_transcoded_calls_are_judged_by_their_method(guarded: Guarded) -> None:
    """gRPC-Web over HTTP/1.1, which becomes a gRPC call."""
    client = httpx.Client(
        base_url=f"https://{guarded.address}/services.echo.Echo",
        verify=tls_context(guarded.alice, guarded.root),
        timeout=TIMEOUT_S,
    )

    def status(method: str, token: str | None) -> bytes:
        message = echo_pb2.EchoRequest(payload=b"hello").SerializeToString()
        answer = client.post(
            method,
            content=struct.pack(">BI", 0, len(message)) + message,
            headers={"content-type": "application/grpc-web+proto", **dict(bearer(token))},
        )
        # Without a message, the status may stand in the head.
        found = re.search(rb"grpc-status: ?(\d+)", answer.content)
        return found[1] if found else answer.headers["grpc-status"].encode()

    def number(code: grpc.StatusCode) -> bytes:
        return str(code.value[0]).encode()

    with client:
        assert status("/Echo", None) == number(grpc.StatusCode.OK)
        assert status("/Perform", None) == number(grpc.StatusCode.UNAUTHENTICATED)
        assert status("/Perform", TOKEN) == number(grpc.StatusCode.OK)
        assert status("/Fork", TOKEN) == number(grpc.StatusCode.PERMISSION_DENIED)


def test_refusals_are_written_down_without_the_token(guarded: Guarded) -> None:
    with guarded.channel() as channel, pytest.raises(grpc.RpcError):
        echo_pb2_grpc.EchoStub(channel).Perform(
            echo_pb2.PerformRequest(), timeout=TIMEOUT_S, metadata=bearer("not-to-be-written")
        )
    line = f"UNAUTHENTICATED (certificate: {ALICE!r}, bearer token: given)"
    wait_until(lambda: line in guarded.mesh.output())
    assert "/services.echo.Echo/Perform" in guarded.mesh.output()
    for secret in ("not-to-be-written", TOKEN, FILE_TOKEN):
        assert secret not in guarded.mesh.output()


def test_new_rules_act_and_wrong_ones_are_refused(guarded: Guarded) -> None:
    guarded.rules.write_text(RULES + "    surprise: 1\n")
    wait_until(lambda: "rules[4].surprise is not allowed" in guarded.mesh.output(), RELOAD_S)
    bob = guarded.issuer.issue(BOB)
    with guarded.channel(bob) as channel:
        count = echo_pb2_grpc.EchoStub(channel).Count

        def code() -> grpc.StatusCode:
            try:
                count(echo_pb2.CountRequest(), timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                return code_of(error)
            return grpc.StatusCode.OK

        assert code() is grpc.StatusCode.PERMISSION_DENIED
        # The connection stays; its next call meets the new rules.
        guarded.rules.write_text(RULES + f"  - paths: [/**]\n    identities: [{BOB}]\n")
        wait_until(lambda: code() is grpc.StatusCode.OK, RELOAD_S)
        guarded.rules.write_text(RULES)
        wait_until(lambda: code() is grpc.StatusCode.PERMISSION_DENIED, RELOAD_S)


class Load:
    """Calls without a pause: over one connection that stays, and over a new one each time."""

    def __init__(self, guarded: Guarded, *roots: Authority) -> None:
        self._guarded = guarded
        self._roots = roots
        self._stopping = threading.Event()
        self.leaf = guarded.alice
        self.kept = self.fresh = 0
        self.failures: list[grpc.RpcError] = []
        self._threads = [threading.Thread(target=run) for run in (self._keep, self._renew)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def progress(self) -> None:
        """Wait until each kind has made calls that began after this moment."""
        kept, fresh = self.kept, self.fresh
        wait_until(lambda: self.failures or (self.kept > kept + 5 and self.fresh > fresh + 2))
        assert [] == self.failures

    def _keep(self) -> None:
        with open_channel(self._guarded.address, self.leaf, *self._roots) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            while not self._stopping.is_set():
                try:
                    stub.Echo(echo_pb2.EchoRequest(), timeout=TIMEOUT_S)
                except grpc.RpcError as error:
                    self.failures.append(error)
                    return
                self.kept += 1

    def _renew(self) -> None:
        while not self._stopping.is_set():
            try:
                echo(self._guarded.address, self.leaf, *self._roots)
            except grpc.RpcError as error:
                self.failures.append(error)
                return
            self.fresh += 1


@pytest.mark.long
def test_leaf_issuer_and_root_change_under_load(guarded: Guarded) -> None:
    """No call fails while each is exchanged, and what is taken out is refused within 5 s."""
    old, new = guarded.root, Authority()

    def use(leaf: Leaf, *roots: Authority) -> None:
        guarded.files.write(leaf, *roots)
        wait_until(
            lambda: leaf.serial == served_serial(guarded.address, load.leaf, old, new), RELOAD_S
        )
        load.progress()

    with Load(guarded, old, new) as load:
        load.progress()
        use(guarded.issuer.issue("127.0.0.1"), old)
        use(Authority(old).issue("127.0.0.1"), old)
        # Both roots are trusted first; then peers change; then the old one goes.
        issuer = Authority(new)
        use(issuer.issue("127.0.0.1"), old, new)
        load.leaf = issuer.issue(ALICE)
        load.progress()
        use(issuer.issue("127.0.0.1"), new)
        with pytest.raises(grpc.RpcError) as caught:
            echo(guarded.address, guarded.alice, old, new)
        assert code_of(caught.value) is grpc.StatusCode.UNAVAILABLE
        load.progress()
        # A key that does not fit its certificate is refused, and the last good pair stays.
        good = served_serial(guarded.address, load.leaf, new)
        crossed = Leaf(issuer.issue("127.0.0.1").key, issuer.issue("127.0.0.1").chain, 0)
        guarded.files.write(crossed, new)
        wait_until(lambda: "cannot be used, the old stay" in guarded.mesh.output(), RELOAD_S)
        assert good == served_serial(guarded.address, load.leaf, new)
        use(guarded.issuer.issue("127.0.0.1"), old, new)
        load.leaf = guarded.alice
        load.progress()
