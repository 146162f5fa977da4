"""A head up to the limit of the ingress reaches the replicas, by each way in."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import httpx
import pytest
from websockets.sync.client import connect

from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import RunningMesh, running_mesh

pytestmark = pytest.mark.slow

_LIMIT_BYTES = 64 * 1024
_TIMEOUT_S = 20.0
# With what clients send besides, below the limit of the ingress.
_SIZE = 60_000


@pytest.fixture(scope="module")
def wide() -> Iterator[RunningMesh]:
    """Run a mesh that takes heads of 64 KiB."""
    with running_mesh(
        "tests.mesh.ingress.measuring:web",
        environment={"PYSERVE_INGRESS_MAX_HEADER_BYTES": str(_LIMIT_BYTES)},
    ) as running:
        yield running


def test_http_and_websockets(wide: RunningMesh) -> None:
    headers = {"cookie": "x" * _SIZE}
    answer = httpx.get(f"http://{wide.address}/", headers=headers, timeout=_TIMEOUT_S)
    assert (200, _SIZE) == (answer.status_code, answer.json())
    with connect(
        f"ws://{wide.address}/talk", additional_headers=headers, open_timeout=_TIMEOUT_S
    ) as websocket:
        assert str(_SIZE) == websocket.recv(timeout=_TIMEOUT_S)


def test_metadata_of_grpc() -> None:
    with (
        running_mesh(
            "tests.mesh.ingress.measuring:echo",
            environment={"PYSERVE_INGRESS_MAX_HEADER_BYTES": str(_LIMIT_BYTES)},
        ) as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        reply = echo_pb2_grpc.EchoStub(channel).Echo(
            echo_pb2.EchoRequest(), metadata=(("cookie", "x" * _SIZE),), timeout=_TIMEOUT_S
        )
    assert str(_SIZE).encode() == reply.payload


def test_beyond_the_limit_the_ingress_says_so(wide: RunningMesh) -> None:
    headers = {"cookie": "x" * _LIMIT_BYTES}
    answer = httpx.get(f"http://{wide.address}/", headers=headers, timeout=_TIMEOUT_S)
    assert 431 == answer.status_code
    assert f"larger than {_LIMIT_BYTES} bytes" in answer.text
