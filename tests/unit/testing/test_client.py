"""``pyserve.testing.client``: the doors of an application that runs in the test's process."""

import sys
import warnings
from collections.abc import Iterator

import httpx
import pytest

from pyserve import testing
from pyserve.driver.local import find_local
from pyserve.errors import UsageError
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.apps import web

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client() -> Iterator[testing.Client]:
    with testing.client(web.app, timeout_s=20) as client:
        yield client
    assert find_local() is None


def test_plain_http_reaches_the_web_application(client: testing.Client) -> None:
    assert {"text": "HA", "by": "Web"} == client.http.get("/upper/ha").json()
    assert "Web" == client.http.get("/plain").json()
    assert client.url == f"http://{client.address}"


def test_websockets_do(client: testing.Client) -> None:
    with client.websocket("/chat") as socket:
        socket.send("hi")
        assert "HI" == socket.recv(10)


def test_services_are_called_by_grpc_and_by_json(client: testing.Client) -> None:
    reply = client.stub(echo_pb2_grpc.EchoStub).Echo(
        echo_pb2.EchoRequest(payload=b"ha"), timeout=10
    )
    assert b"ha" == reply.payload
    assert {"payload": "aGE="} == client.json("services.echo.Echo/Echo", {"payload": "aGE="})
    with pytest.raises(httpx.HTTPStatusError) as raised:
        client.json("services.echo.Echo/Perfrom")
    (note,) = raised.value.__notes__
    assert "did you mean /services.echo.Echo/Perform?" in note


def test_the_client_of_starlette_works_inside(client: testing.Client) -> None:
    """In a thread and on a loop of its own, and its routes know whose they are."""
    with warnings.catch_warnings():
        # That httpx has a successor, at its import.
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient
    of_starlette = TestClient(web.api)
    assert {"text": "IN", "by": "Web"} == of_starlette.get("/upper/in").json()
    assert "Web" == of_starlette.get("/plain").json()
    with of_starlette.websocket_connect("/chat") as socket:
        socket.send_text("hi")
        assert "HI" == socket.receive_text()
    assert {"text": "HA", "by": "Web"} == client.http.get("/upper/ha").json()


def test_a_deployment_that_answers_http_itself_has_the_same_client() -> None:
    with testing.client(web.Upper.bind(), name="upper", timeout_s=20) as client:
        assert "HA" == client.http.post("/", json="ha").text
        assert "HA" == client.handle.remote("ha").result(timeout_s=30)


def test_what_is_not_installed_is_named(
    client: testing.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "websockets.sync.client", None)
    with pytest.raises(UsageError, match=r"pip install 'pyserve-mesh\[testing\]'"):
        client.websocket()
