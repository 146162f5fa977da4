"""A call that a handler makes and that is refused is told to its client as what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.contract.fastapi.exchange import Answered, Asked, ask
from tests.mesh.asgi.refusals import children, parents
from tests.support.mesh import RunningMesh

pytestmark = pytest.mark.slow

_TIMEOUT_S = 20.0
_EXPECTED = {"full": 429, "late": 408, "gone": 503}


@pytest.fixture(scope="module")
def refusing(mesh: RunningMesh) -> Iterator[RunningMesh]:
    """Serve the applications; the busy one has no room."""
    called = children()
    for name, application in called.items():
        pyserve.run(application, name=name, route_prefix=None)
    calling = parents()
    for name, application in calling.items():
        prefix = None if "servicer" in name else f"/{name}"
        pyserve.run(application, name=name, route_prefix=prefix)
    held = pyserve.get_app_handle("refusals-busy").options(stream=True).hold.remote()
    try:
        assert "held" == next(held)
        yield mesh
    finally:
        held.cancel()
        for name in (*called, *calling):
            pyserve.delete(name)


def _check(answered: Answered, what: str) -> None:
    assert _EXPECTED[what] == answered.status, answered
    headers = dict(answered.headers)
    after = {"full": b"7", "gone": b"1"}.get(what)
    assert after == headers.get(b"retry-after")
    assert answered.body.startswith(b"A deployment behind this one ")


@pytest.mark.parametrize("what", _EXPECTED)
@pytest.mark.parametrize("path", ["web/async", "web/sync", "plain?what="])
def test_plain_http_gets_the_status_of_the_refusal(
    refusing: RunningMesh, path: str, what: str
) -> None:
    separator = "" if path.endswith("=") else "/"
    _check(ask(refusing.address, Asked("GET", f"/refusals-{path}{separator}{what}")), what)


@pytest.mark.parametrize("what", _EXPECTED)
def test_a_blocking_call_gets_it_too(refusing: RunningMesh, what: str) -> None:
    body = json.dumps({"what": what}).encode()
    asked = Asked("POST", "/refusals-blocking", [("content-type", "application/json")], body)
    _check(ask(refusing.address, asked), what)


def test_handlers_of_the_application_come_first(refusing: RunningMesh) -> None:
    assert 418 == ask(refusing.address, Asked("GET", "/refusals-withhandlers/gone")).status
    assert 429 == ask(refusing.address, Asked("GET", "/refusals-withhandlers/full")).status


def test_a_websocket_is_closed_with_come_again_later(refusing: RunningMesh) -> None:
    url = f"ws://{refusing.address}/refusals-web/socket/full"
    with connect(url, open_timeout=_TIMEOUT_S) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(_TIMEOUT_S)
    assert closed.value.rcvd is not None
    assert 1013 == closed.value.rcvd.code


@pytest.mark.parametrize(
    ("code", "status", "close"),
    [("NOT_FOUND", 404, 1011), ("UNAVAILABLE", 503, 1013), ("INTERNAL", 500, 1011)],
)
def test_an_abort_is_answered_by_its_code(
    refusing: RunningMesh, code: str, status: int, close: int
) -> None:
    answered = ask(refusing.address, Asked("GET", f"/refusals-web/abort/{code}"))
    assert (status, b"as it says\n") == (answered.status, answered.body)
    assert b"asked" == dict(answered.headers)[b"x-why"]
    url = f"ws://{refusing.address}/refusals-web/abort/{code}"
    with connect(url, open_timeout=_TIMEOUT_S) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(_TIMEOUT_S)
    assert closed.value.rcvd is not None
    assert (close, "as it says") == (closed.value.rcvd.code, closed.value.rcvd.reason)


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("full", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("late", grpc.StatusCode.DEADLINE_EXCEEDED),
        ("gone", grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_grpc_gets_its_own_status(refusing: RunningMesh, what: str, code: grpc.StatusCode) -> None:
    with (
        grpc.insecure_channel(refusing.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        echo_pb2_grpc.EchoStub(channel).Echo(
            echo_pb2.EchoRequest(payload=what.encode()), timeout=_TIMEOUT_S
        )
    assert isinstance(caught.value, grpc.Call)
    assert code is caught.value.code()
    assert "behind this one" in (caught.value.details() or "")
