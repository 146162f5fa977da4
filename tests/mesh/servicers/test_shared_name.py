"""An application and a deployment that are named as their ``.proto``'s package and service."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import grpc
import pytest

import pyserve
from tests.mesh.servicers.named_app import app
from tests.ray_programs.programs import fruit_pb2, fruit_pb2_grpc

pytestmark = pytest.mark.slow

TIMEOUT_S = 20
_NAME = "fruit"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(app, name=_NAME, route_prefix="/front")
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


@pytest.mark.parametrize("metadata", [(), (("application", _NAME),)], ids=["alone", "named"])
def test_stubs_reach_the_service_of_the_proto(
    address: str, metadata: tuple[tuple[str, str], ...]
) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = fruit_pb2_grpc.FruitServiceStub(channel)
        request = fruit_pb2.ModelName(name="pear")
        assert "PEAR" == stub.Multiplexing(request, metadata=metadata, timeout=TIMEOUT_S).name
        costs = stub.Streaming(
            fruit_pb2.FruitAmounts(apple=2), metadata=metadata, timeout=TIMEOUT_S
        )
        assert [0.0, 1.0] == [each.costs for each in costs]


def test_json_reaches_it_too(address: str) -> None:
    request = urllib.request.Request(
        f"http://{address}/fruit.FruitService/Multiplexing",
        b'{"name": "plum"}',
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        assert {"name": "PLUM"} == json.loads(answer.read())


def test_handles_call_it_by_its_methods(address: str) -> None:
    del address  # It is running.
    handle = pyserve.get_app_handle(_NAME)
    assert "A 3 B" == handle.remote("a").result(timeout_s=TIMEOUT_S)
