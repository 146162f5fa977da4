"""Time limits of requests from wherever they are set, and the statuses of failures."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 30.0
_LIMIT = "x-request-timeout-seconds"


@pytest.fixture
def echo(mesh: RunningMesh) -> Iterator[echo_pb2_grpc.EchoStub]:
    """Open a stub of the servicer."""
    with grpc.insecure_channel(mesh.address) as channel:
        yield echo_pb2_grpc.EchoStub(channel)


@pytest.fixture
def limited(mesh: RunningMesh) -> Iterator[None]:
    """Give the running mesh a time limit, and take it back."""
    pyserve.start(http_options={"request_timeout_s": 0.4})
    yield
    pyserve.start(http_options={"request_timeout_s": 0})


@pytest.mark.parity("S-45")
def test_time_left_goes_along_from_http_to_the_child(client: httpx.Client) -> None:
    answer = client.get("/web", params={"wait_s": 0.2}, headers={_LIMIT: "60"}).json()

    assert 30 < answer["here_s"] < 59.81
    assert answer["child_s"] < answer["here_s"] < answer["child_s"] + 20


@pytest.mark.parity("S-45")
@pytest.mark.parametrize("headers", [{}, {_LIMIT: "0"}, {_LIMIT: "-1"}])
def test_request_without_a_limit_has_none(client: httpx.Client, headers: dict[str, str]) -> None:
    answer = client.get("/web", headers=headers).json()

    assert (None, None) == (answer["here_s"], answer["child_s"])


@pytest.mark.parametrize(
    "value", ["1e400", "-1e400", "inf", "-Infinity", "nan", "", "1,2", "0x1", "1 s"]
)
def test_a_limit_that_is_no_finite_number_is_refused(client: httpx.Client, value: str) -> None:
    answer = client.get("/web", headers={_LIMIT: value})

    assert 400 == answer.status_code
    assert "allowed: a finite number of seconds, 0 for no limit" in answer.text


@pytest.mark.parity("S-46")
@pytest.mark.parity("G-46")
def test_limit_of_the_request_ends_it_with_408(client: httpx.Client) -> None:
    answer = client.get("/web", params={"wait_s": 25}, headers={_LIMIT: "0.2"})

    assert 408 == answer.status_code
    assert answer.headers["pyserve-answered-by"] in {"ingress", "replica"}


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        # Of the ingress, and of what has the call when its time is over.
        ("/web", "", {_LIMIT: "soon"}, 400),
        ("/", "25", {_LIMIT: "0.2"}, 408),
    ],
)
def test_pages_of_other_origins_can_read_what_the_mesh_answers(
    client: httpx.Client, path: str, body: str, headers: dict[str, str], status: int
) -> None:
    sent = {"origin": "https://page.example", **headers}

    refused = client.post(path, content=body, headers=sent)

    assert status == refused.status_code
    assert "pyserve-answered-by" in refused.headers
    assert "*" == refused.headers["access-control-allow-origin"]
    exposed = refused.headers["access-control-expose-headers"].split(",")
    assert "pyserve-answered-by" in exposed
    answered = client.post("/", content="0", headers={"origin": "https://page.example"})
    assert "access-control-allow-origin" not in answered.headers, "that is the application's"


@pytest.mark.parity("S-46")
def test_limit_of_the_deployment_ends_it_with_408_and_the_request_may_extend_it(
    client: httpx.Client,
) -> None:
    assert 408 == client.post("/", content="25").status_code
    assert 0.2 < client.post("/", content="0").json() < 1.501
    assert 200 == client.post("/", content="1.6", headers={_LIMIT: "30"}).status_code


@pytest.mark.parity("S-45")
@pytest.mark.parity("S-46")
@pytest.mark.parity("G-45")
@pytest.mark.parity("G-46")
@pytest.mark.usefixtures("limited")
def test_limit_of_the_mesh_is_changed_while_it_runs_for_http_and_grpc(
    client: httpx.Client, echo: echo_pb2_grpc.EchoStub
) -> None:
    assert 408 == client.get("/web", params={"wait_s": 25}).status_code
    assert 200 == client.get("/web", params={"wait_s": 0.5}, headers={_LIMIT: "30"}).status_code
    with pytest.raises(grpc.RpcError) as caught:
        echo.Perform(echo_pb2.PerformRequest(delay_s=25))
    assert grpc.StatusCode.DEADLINE_EXCEEDED is caught.value.code()


@pytest.mark.parity("G-45")
def test_smaller_of_the_clients_and_the_deployments_limit_holds_for_grpc(
    echo: echo_pb2_grpc.EchoStub,
) -> None:
    reply = echo.Perform(echo_pb2.PerformRequest(), timeout=_TIMEOUT_S)
    # grpcio sends two or three digits, rounded up.
    assert 0.3 * _TIMEOUT_S < float(reply.payload) <= 1.01 * _TIMEOUT_S
    with pytest.raises(grpc.RpcError) as caught:
        echo.Perform(echo_pb2.PerformRequest(delay_s=25), timeout=0.2)

    assert grpc.StatusCode.DEADLINE_EXCEEDED is caught.value.code()


@pytest.mark.parity("S-45")
@pytest.mark.parity("G-46")
@pytest.mark.parity("G-05")
def test_full_queue_is_answered_as_configured_and_expired_work_is_dropped(
    client: httpx.Client, mesh: RunningMesh
) -> None:
    begun = client.post("/web/narrow", content="0").json()

    def send(wait_s: float, limit_s: float) -> httpx.Response:
        return httpx.post(
            f"http://{mesh.address}/web/narrow",
            content=str(wait_s),
            headers={_LIMIT: str(limit_s), "origin": "https://page.example"},
            timeout=_TIMEOUT_S,
        )

    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(send, 5.0, 30)
        wait_until(lambda: 1 == pyserve.status().ingress.in_flight)
        waiting = threads.submit(send, 0, 3.0)
        wait_until(lambda: 1 == pyserve.status().ingress.parked)
        refused = send(0, 10)

        assert 429 == refused.status_code
        exposed = refused.headers["access-control-expose-headers"].split(",")
        assert "retry-after" in exposed
        assert int(refused.headers["retry-after"]) >= 1
        assert 408 == waiting.result().status_code
        assert begun + 1 == running.result().json()
    assert begun + 2 == client.post("/web/narrow", content="0").json(), "the expired one never ran"


@pytest.mark.parity("G-46")
def test_errors_of_user_code_are_500_without_their_text(client: httpx.Client) -> None:
    answer = client.get("/web", params={"fail": 1})

    assert 500 == answer.status_code
    assert "secret" not in answer.text


@pytest.mark.parity("G-46")
def test_unknown_methods_are_unimplemented_over_grpc(mesh: RunningMesh) -> None:
    with grpc.insecure_channel(mesh.address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        call = channel.unary_unary("/services.echo.Nobody/Echo")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=_TIMEOUT_S)

    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code()


@pytest.mark.parity("G-37")
def test_request_id_is_echoed_or_made(client: httpx.Client) -> None:
    assert "mine" == client.get("/web", headers={"x-request-id": "mine"}).headers["x-request-id"]
    assert client.get("/web").headers["x-request-id"]
