"""TLS between the processes of a mesh: no plain byte over TCP, and no process without its name."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import pytest

from pyserve.api.context import attach
from pyserve.control.discovery import MeshRecord, read_record
from pyserve.control.home import read_token
from pyserve.driver.handles import get_deployment_handle
from pyserve.driver.session import Session
from pyserve.errors import PyserveError
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc
from tests.mesh.security.clients import TIMEOUT_S, code_of, open_channel, served_serial
from tests.support.authority import Authority, Files, Leaf
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.removing import remove_at_once
from tests.support.session import attached, attached_by
from tests.support.waiting import wait_until

MEMBER = "spiffe://test/mesh/*"
# The bound of the requirement: a reload takes effect within it.
RELOAD_S = 5.0
# Above what travels inside of a call.
LARGE_BYTES = 9 << 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def member(authority: Authority) -> Leaf:
    """Return the certificate of a process of the mesh."""
    return authority.issue("127.0.0.1", "spiffe://test/mesh/process")


@dataclass(frozen=True)
class Private:
    """A mesh whose processes show certificates to each other."""

    mesh: RunningMesh
    root: Authority
    files: Files

    @property
    def record(self) -> MeshRecord:
        """Where its controller listens."""
        record = read_record(self.mesh.home)
        assert record is not None
        return record

    def replica_address(self) -> str:
        """Return ``host:port`` of its replica, as the controller knows it."""
        token = read_token(Path(self.record.token_file))
        with open_channel(self.record.controller_tcp, member(self.root), self.root) as channel:
            updates = mesh_pb2_grpc.MeshStub(channel).Watch(
                mesh_pb2.WatchRequest(node="test", all=True, version=self.record.version),
                metadata=(("pyserve-token-bin", token),),
                timeout=TIMEOUT_S,
            )
            view = next(iter(updates)).changed[0]
            updates.cancel()
        return view.replicas[0].endpoints.address

    @contextmanager
    def driver(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
        """Attach this process as one on another machine: everything goes over TCP."""
        for name, value in {
            **files.environment("PYSERVE_MESH_TLS"),
            "PYSERVE_MESH_TLS_NAMES": MEMBER,
            "PYSERVE_HOME": str(self.mesh.home),
            "PYSERVE_CONTROLLER": self.record.controller_tcp,
            "PYSERVE_NODE_ID": "another-machine",
        }.items():
            monkeypatch.setenv(name, value)
        with attached_by(os.environ) as session:
            yield session


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    root = Authority()
    files = Files(tmp_path_factory.mktemp("mesh") / "tls")
    files.write(member(root), root)
    environment = {
        **files.environment("PYSERVE_MESH_TLS"),
        "PYSERVE_MESH_TLS_NAMES": MEMBER,
        # Its controller listens for other machines too.
        "PYSERVE_ADVERTISE_HOST": "127.0.0.1",
    }
    with running_mesh("tests.mesh.security.apps:digest", environment=environment) as mesh:
        yield Private(mesh, root, files)


def test_calls_control_and_values_go_over_tls(
    private: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handle calls, large values both ways, and the controller's answers."""
    with private.driver(private.files, monkeypatch) as session:
        assert session.client.status().controller_pid
        handle = get_deployment_handle("Digest", "default")
        data = b"y" * LARGE_BYTES
        expected = hashlib.sha256(data).hexdigest()
        assert expected == handle.remote(data).result(timeout_s=TIMEOUT_S)
        made = handle.make.remote(LARGE_BYTES).result(timeout_s=TIMEOUT_S)
        assert LARGE_BYTES == len(made)


def test_a_plain_dial_gets_nowhere(private: Private) -> None:
    """The ports answer no HTTP/2, only a TLS alert at most, and close."""
    for address in (private.replica_address(), private.record.controller_tcp):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain:
            plain.sendall(PREFACE)
            answer = b"".join(iter(lambda: _receive(plain), b""))
        # Content type 21 is an alert of TLS; the answer has no SETTINGS frame.
        assert answer[:1] in {b"", b"\x15"}
        assert len(answer) <= 7


def code_of_handshake(channel: grpc.Channel) -> grpc.StatusCode:
    """Return what a replica answers to the first request of routers."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        "/pyserve.mesh/Handshake"
    )
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=TIMEOUT_S)
    return code_of(caught.value)


def _receive(plain: socket.socket) -> bytes:
    try:
        return plain.recv(1024)
    except ConnectionResetError:
        return b""


def test_a_peer_without_the_mesh_s_name_fails_the_handshake(private: Private) -> None:
    """Also with the right root: no certificate, or one of somebody else."""
    address = private.replica_address()
    stranger = private.root.issue("127.0.0.1", "spiffe://test/client/alice")
    for leaf in (None, stranger, member(Authority())):
        with open_channel(address, leaf, private.root) as channel:
            assert code_of_handshake(channel) is grpc.StatusCode.UNAVAILABLE


def test_a_process_with_another_name_cannot_attach(
    private: Private, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = Files(tmp_path_factory.mktemp("stranger") / "tls")
    files.write(private.root.issue("127.0.0.1", "spiffe://test/client/alice"), private.root)
    with private.driver(files, monkeypatch) as session, pytest.raises(PyserveError):
        session.client.status()


def test_a_router_does_not_take_a_replica_with_another_name(
    private: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    with private.driver(private.files, monkeypatch) as session:
        monkeypatch.setenv("PYSERVE_MESH_TLS_NAMES", "spiffe://test/others/*")
        other = Session(session.address, None)
        try:
            attach(other)
            with pytest.raises(PyserveError):
                get_deployment_handle("Digest", "default").remote(b"").result(timeout_s=3)
        finally:
            attach(session)
            other.close()


@pytest.mark.long
def test_leaf_issuer_and_root_change_under_load(
    private: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of a driver never fail; new processes need the new root."""
    old, new = private.root, Authority()
    stopping, failures, counts = threading.Event(), [], [0]

    def call() -> None:
        handle = get_deployment_handle("Digest", "default")
        while not stopping.is_set():
            try:
                handle.remote(b"steady").result(timeout_s=TIMEOUT_S)
            except PyserveError as error:
                failures.append(error)
                return
            counts[0] += 1

    def use(leaf: Leaf, *roots: Authority) -> None:
        private.files.write(leaf, *roots)
        addresses = (replica, private.record.controller_tcp)
        client = leaf if new in roots and old not in roots else member(old)

        def is_used() -> bool:
            return all(
                leaf.serial == served_serial(address, client, old, new) for address in addresses
            )

        wait_until(is_used, RELOAD_S)
        before = counts[0]
        wait_until(lambda: failures or counts[0] > before + 5)
        assert [] == failures

    replica = private.replica_address()
    with private.driver(private.files, monkeypatch):
        thread = threading.Thread(target=call)
        thread.start()
        try:
            use(member(old), old)
            use(member(Authority(old)), old)
            use(member(old), old, new)
            use(member(Authority(new)), old, new)
            use(member(Authority(new)), new)
        finally:
            stopping.set()
            thread.join(TIMEOUT_S)
    assert [] == failures
    with private.driver(private.files, monkeypatch) as session:
        assert session.client.status().controller_pid
        fresh = get_deployment_handle("Digest", "default").remote(b"").result(timeout_s=TIMEOUT_S)
        assert fresh == hashlib.sha256(b"").hexdigest()
    with open_channel(replica, member(old), old, new) as channel:
        assert code_of_handshake(channel) is grpc.StatusCode.UNAVAILABLE


def test_files_that_somebody_removed_are_made_anew(private: Private) -> None:
    """The socket's servers are ours here, since the others cannot follow certificates."""

    def running(session: Session) -> list[int]:
        (application,) = session.client.status().applications
        (deployment,) = application.deployments
        return [each.pid for each in deployment.replicas if each.state == "RUNNING"]

    def is_told(session: Session) -> bool:
        return any("and made anew" in each for each in session.client.status().notices)

    def is_replaced(session: Session, before: int) -> bool:
        return running(session) not in ([], [before])

    for _ in range(2):
        remove_at_once(Path(private.record.token_file).parent)
        wait_until(lambda: read_record(private.mesh.home) is not None, TIMEOUT_S)
        with attached(private.mesh.home) as session:
            wait_until(partial(is_told, session), TIMEOUT_S)
            (before,) = running(session)
            os.kill(before, signal.SIGKILL)
            wait_until(partial(is_replaced, session, before), TIMEOUT_S)
