"""The servers: grpcio's, ours, and a deployment behind an ingress; and the clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc.aio
import pytest

import pyserve.aio
from tests.contract.foreign.meshes import settling_mesh
from tests.contract.interop.calls import CLIENTS, Client
from tests.contract.interop.interop_pb2_grpc import add_TestServiceServicer_to_server
from tests.contract.interop.service import InteropServicer
from tests.contract.interop.wire import LOG_VARIABLE, WireLog


@pytest.fixture(scope="session")
def wire_log(tmp_path_factory: pytest.TempPathFactory) -> WireLog:
    """Where relays note what they saw, for servers in any process."""
    return WireLog(tmp_path_factory.mktemp("wire"))


@contextlib.asynccontextmanager
async def _served(make_server: Callable[[], Any], log: WireLog) -> AsyncIterator[str]:
    server = make_server()
    add_TestServiceServicer_to_server(InteropServicer(log), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def grpcio_server(wire_log: WireLog) -> AsyncIterator[str]:
    """The reference: what does not hold here is a mistake of the case."""
    async with _served(grpc.aio.server, wire_log) as address:
        yield address


@pytest.fixture
async def pyserve_server(wire_log: WireLog) -> AsyncIterator[str]:
    async with _served(pyserve.aio.server, wire_log) as address:
        yield address


@pytest.fixture(scope="session")
def pyserve_mesh(wire_log: WireLog) -> Iterator[str]:
    """The ingress in front of one replica."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOG_VARIABLE, str(wire_log.folder))
        with settling_mesh("tests.contract.interop.application:app") as mesh:
            yield mesh.address


@pytest.fixture(params=["grpcio_server", "pyserve_server", "pyserve_mesh"])
def address(request: pytest.FixtureRequest) -> str:
    """Where the server listens."""
    value: str = request.getfixturevalue(request.param)
    return value


@pytest.fixture(params=list(CLIENTS), ids=lambda name: f"{name}_client")
def client(request: pytest.FixtureRequest, address: str) -> Client:
    return Client(request.param, CLIENTS[request.param], address)
