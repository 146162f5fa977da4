"""Codes of failures arrive through an ingress, and details where clients take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.servicers.failing_apps import DETAILS, app, generous

pytestmark = pytest.mark.slow

TIMEOUT_S = 20
_RICH = "grpc-status-details-bin"
_CALLS = 40
_REQUEST = echo_pb2.EchoRequest(payload=b"hello")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(app, name="plain", route_prefix=None)
        pyserve.run(generous, name="generous", route_prefix=None)
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


def _failures(address: str, application: str, limit: int | None) -> Iterator[grpc.RpcError]:
    options = [] if limit is None else [("grpc.max_metadata_size", limit)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        for _ in range(_CALLS):
            with pytest.raises(grpc.RpcError) as raised:
                stub.Echo(_REQUEST, metadata=(("application", application),), timeout=TIMEOUT_S)
            yield raised.value


def _trailers(error: grpc.RpcError) -> dict[str, str | bytes]:
    pairs: Any = error.trailing_metadata() or ()  # typed as tuples without their length
    return dict(pairs)


def test_a_client_with_default_limits_gets_code_and_text(address: str) -> None:
    for error in _failures(address, "plain", None):
        assert (grpc.StatusCode.ABORTED, "t" * 3000) == (error.code(), error.details())
        assert _RICH not in _trailers(error)


def test_clients_that_take_more_get_the_details_too(address: str) -> None:
    for error in _failures(address, "generous", 40_000):
        assert (grpc.StatusCode.ABORTED, "t" * 3000) == (error.code(), error.details())
        assert DETAILS == _trailers(error)[_RICH]
