"""A controller that other machines reach, and those who reach it without the mesh token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import psutil
import pytest

from pyserve.config import read_settings
from pyserve.control.discovery import MeshRecord, find_mesh, read_record
from pyserve.control.home import read_token
from pyserve.driver.client import ControlClient
from pyserve.wire.v1 import control_pb2
from tests.mesh.control.peers import message, peer_of, token_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

DEPLOY = "/pyserve.wire.v1.Control/Deploy"
STATUS = "/pyserve.wire.v1.Control/Status"
MODEL = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"
JOIN = "/pyserve.wire.v1.Mesh/Join"
BODY_BYTES = 256 << 20
RSS_GROWTH_BYTES_MAX = 64 << 20
# What is sent before the answer can have come: a window, and what is on its way.
SENT_BYTES_MAX = 1 << 20
CALLS = 50
UNAUTHENTICATED, RESOURCE_EXHAUSTED = 16, 8


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    """Run a mesh whose controller listens for other machines."""
    with reachable_mesh() as mesh:
        yield mesh


def reachable_mesh() -> AbstractContextManager[RunningMesh]:
    environment = {"PYSERVE_ADVERTISE_HOST": "127.0.0.1"}
    return running_mesh("tests.mesh.apps.small:app", environment=environment)


def record_of(mesh: RunningMesh) -> MeshRecord:
    record = read_record(mesh.home)
    assert record is not None
    return record


@pytest.mark.parametrize("path", [DEPLOY, STATUS, JOIN])
def test_a_body_without_the_token_is_not_read(mesh: RunningMesh, path: str) -> None:
    """It is refused at its head, so it costs the controller neither memory nor time."""
    record = record_of(mesh)
    process = psutil.Process(record.pid)
    _check_refusal(record.controller_tcp, path, process)


def test_a_body_for_what_the_ingress_answers_itself_is_not_read(mesh: RunningMesh) -> None:
    """Their port is for the ingress, which proves the token."""
    ingress = _ingress_of(mesh)
    process = psutil.Process(ingress.pid)
    known = (*ingress.addresses, ingress.admin)
    public = {address.rpartition(":")[2] for address in known}
    sockets = process.net_connections(kind="tcp")
    ports = {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    (port,) = ports - {int(port) for port in public}
    for path in (MODEL, HEALTH):
        _check_refusal(f"127.0.0.1:{port}", path, process)


def _ingress_of(mesh: RunningMesh) -> control_pb2.IngressStatus:
    found = find_mesh(read_settings({"PYSERVE_HOME": str(mesh.home)}))
    assert found is not None
    with closing(ControlClient(found)) as client:
        reply = client.status()
    (ingress,) = reply.ingresses
    return ingress


def _check_refusal(address: str, path: str, process: psutil.Process) -> None:
    rss_bytes = process.memory_info().rss
    with peer_of(address) as peer:
        peer.begin(path, body=message(BODY_BYTES))
        sent_bytes = peer.push(BODY_BYTES)
        grown_bytes = process.memory_info().rss - rss_bytes
        assert UNAUTHENTICATED == peer.status()
    assert sent_bytes <= SENT_BYTES_MAX
    assert grown_bytes <= RSS_GROWTH_BYTES_MAX


def test_calls_without_the_token_are_one_line_of_the_log() -> None:
    # A mesh of its own: others have refused somebody already.
    with reachable_mesh() as mesh:
        with peer_of(record_of(mesh).controller_tcp) as peer:
            for _ in range(CALLS):
                peer.begin(DEPLOY, token_of(b"wrong"), message(BODY_BYTES, bytes(1000)))
                assert UNAUTHENTICATED == peer.status()
        wait_until(lambda: "without the mesh token" in mesh.output())
        output = mesh.output()
    lines = [line for line in output.splitlines() if "without the mesh token" in line]
    assert 1 == len(lines), output
    assert "ipv4:127.0.0.1:" in lines[0]
    assert "/pyserve.wire.v1." in lines[0]
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("path", "size_bytes"), [(STATUS, 2 << 20), (JOIN, 17 << 20), (DEPLOY, (1 << 30) + 1)]
)
def test_a_message_beyond_its_method_s_limit_is_refused(
    mesh: RunningMesh, path: str, size_bytes: int
) -> None:
    """It is refused by the length that it announces, with a token too."""
    record = record_of(mesh)
    token = read_token(Path(record.token_file))
    with peer_of(record.controller_tcp) as peer:
        peer.begin(path, token_of(token), message(size_bytes))
        assert RESOURCE_EXHAUSTED == peer.status()
        assert str(size_bytes) in peer.answer["grpc-message"]
    assert "Traceback" not in mesh.output()
