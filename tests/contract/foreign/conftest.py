"""The clients, and the servers that they call."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from services.echo import echo_pb2_grpc
from services.echo.service import Echo
from tests.contract.foreign import browser_client, node_client
from tests.contract.foreign.calls import Client
from tests.contract.foreign.compressing import CompressOnDemand
from tests.contract.foreign.grpcio_client import GrpcioClient
from tests.contract.foreign.grpclib_client import GrpclibClient
from tests.contract.foreign.meshes import settling_mesh
from tests.contract.foreign.names import PAGES_VARIABLE
from tests.contract.foreign.node_client import NodeClient


@pytest.fixture(params=[GrpcioClient, GrpclibClient, NodeClient], ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest) -> Client:
    if request.param is NodeClient and (reason := node_client.why_not()):
        pytest.skip(reason)
    made: Client = request.param()
    return made


@pytest.fixture
async def grpc_aio_address() -> AsyncIterator[str]:
    """The same service under grpcio's own server: shows that the expectations are gRPC's."""
    server = grpc.aio.server(interceptors=[CompressOnDemand()])
    echo_pb2_grpc.add_EchoServicer_to_server(Echo.target(), server)  # type: ignore[attr-defined]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture(scope="session")
def mesh_address() -> Iterator[str]:
    """The ingress of a mesh with one replica: its counters speak for the whole service."""
    with settling_mesh("tests.contract.foreign.application:app") as mesh:
        yield mesh.address


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page that browsers load, where there are browsers."""
    folder = tmp_path_factory.mktemp("pages")
    if browser_client.why_not() is None:
        browser_client.build_page(folder)
    return folder


@pytest.fixture(scope="session")
def web_address(pages: Path) -> Iterator[str]:
    """The ingress of a mesh with a web application and the service."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PAGES_VARIABLE, str(pages))
        with settling_mesh("tests.contract.foreign.web:app") as mesh:
            yield mesh.address


@pytest.fixture(params=["grpc_aio_address", "mesh_address"])
def address(request: pytest.FixtureRequest) -> str:
    value: str = request.getfixturevalue(request.param)
    return value
