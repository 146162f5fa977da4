"""Each line that is logged while a call is handled names the call, in text and in JSON."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import grpc
import httpx
import pytest
from websockets.sync.client import connect

from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-81")]
PLACES = ("shop", "child", "thread", "own thread", "batch")


def ask(mesh: RunningMesh, text: str, request_id: str) -> httpx.Response:
    headers = {"x-request-id": request_id}
    return httpx.get(f"http://{mesh.address}/", params={"text": text}, headers=headers, timeout=30)


def line_with(mesh: RunningMesh, text: str) -> str:
    """Return the one line of the output that has a text, without the replica's name."""
    wait_until(lambda: text in mesh.output())
    (line,) = (line for line in mesh.output().splitlines() if text in line)
    return line.partition("] ")[2]


def test_lines_of_a_first_run_name_the_request_wherever_its_code_logs() -> None:
    with running_mesh("tests.mesh.logs.apps:app") as mesh:
        assert "one" == ask(mesh, "one", "from-client-1").text
        for place in PLACES:
            assert f" shop [from-client-1]: {place} one" in line_with(mesh, f": {place} one")

        answer = ask(mesh, "fail now", "from-client-2")
        assert answer.is_server_error
        # Ours too, with the traceback below it.
        assert " [from-client-2]: unexpected LookupError in GET /" in line_with(
            mesh, "unexpected LookupError"
        )
        # What concerns no request names none.
        assert " shop: constructed" in line_with(mesh, "constructed")

        own = ask(mesh, "two", "").headers["x-request-id"]
        assert own
        assert f" shop [{own}]: child two" in line_with(mesh, ": child two")


def test_an_id_that_a_client_chooses_forges_no_line() -> None:
    with running_mesh("tests.mesh.logs.apps:app") as mesh:
        ask(mesh, "one", "x]: all is well E 2026-01-01 root: bad")
        line = line_with(mesh, ": shop one")
        assert " shop [x%5D:%20all%20is%20well%20E%202026-01-01%20root:%20bad]: shop one" in line


def test_with_json_each_line_of_the_output_is_an_object_that_names_the_request() -> None:
    environment = {"PYSERVE_LOG_ENCODING": "JSON"}
    with running_mesh("tests.mesh.logs.apps:app", environment=environment) as mesh:
        ask(mesh, "one", "from-client-1")
        # Of two replicas, whose lines come on two ways.
        for place in PLACES:
            wait_until(partial(_is_written, mesh, f'"{place} one"'), what=place)
        found = objects(mesh)

    by_message = {each["message"]: each for each in found}
    for place in PLACES:
        assert "from-client-1" == by_message[f"{place} one"]["request_id"]
        assert "replica" == by_message[f"{place} one"]["component"]
    assert by_message["child one"]["deployment"] == "Child"
    assert "request_id" not in by_message["constructed"]


@pytest.mark.parametrize("arguments", [(), ("--in-process",)], ids=["mesh", "in process"])
def test_lines_of_a_web_application_name_the_request(arguments: tuple[str, ...]) -> None:
    """Of endpoints, what they depend on, what they leave for later, and of WebSockets."""
    with running_mesh("tests.mesh.apps.web:app", *arguments) as mesh:
        with httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client:
            client.get("/upper/ha", headers={"x-request-id": "of-client-1"})
            client.get("/plain", headers={"x-request-id": "of-client-2"})
        headers = {"x-request-id": "of-client-3"}
        url = f"ws://{mesh.address}/chat"
        with connect(url, additional_headers=headers, proxy=None) as socket:
            socket.send("hi")
            assert "HI" == socket.recv(30)
        for request_id, text in (
            *(("of-client-1", f"{place} ha") for place in ("dependency", "endpoint", "behind")),
            ("of-client-1", "afterwards ha"),
            ("of-client-2", "in a thread"),
            ("of-client-3", "chat hi"),
            ("of-client-3", "behind hi"),
        ):
            line = f" web [{request_id}]: {text}"
            wait_until(partial(_is_written, mesh, line), what=line)


def test_lines_of_a_service_name_the_request() -> None:
    """Of a .proto's, whatever runs a method; and what pyserve says of one that raises."""
    with running_mesh("tests.mesh.logs.servicer_app:app") as mesh:
        with grpc.insecure_channel(mesh.address) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            request, perform = echo_pb2.EchoRequest(), echo_pb2.PerformRequest()

            def named(request_id: str) -> dict[str, Any]:
                return {"metadata": [("x-request-id", request_id)], "timeout": 30}

            stub.Echo(request, **named("call-1"))
            stub.EchoSync(request, **named("call-2"))
            assert 1 == len([*stub.EchoStream(echo_pb2.StreamRequest(), **named("call-3"))])
            stream = stub.PerformStreamSync(echo_pb2.PerformStreamRequest(), **named("call-4"))
            assert 1 == len([*stream])
            stub.Collect(iter([perform]), **named("call-5"))
            stub.EchoSuspend(request, **named("call-6"))
            with pytest.raises(grpc.RpcError):
                stub.Echo(echo_pb2.EchoRequest(payload=b"fail"), **named("call-7"))
        for line in (
            " echo [call-1]: in a coroutine",
            " echo [call-2]: in a thread",
            " echo [call-3]: in a stream",
            " echo [call-4]: in a generator",
            " echo [call-5]: behind a message",
            " echo [call-6]: in a batch",
            " [call-7]: unexpected LookupError in the handler of /services.echo.Echo/Echo",
        ):
            wait_until(partial(_is_written, mesh, line), what=line)


def _is_written(mesh: RunningMesh, line: str) -> bool:
    return line in mesh.output()


def objects(mesh: RunningMesh) -> list[dict[str, Any]]:
    # The command's own lines go to its terminal.
    lines = [line for line in mesh.output().splitlines() if not line.startswith("pyserve: ")]
    return [json.loads(line) for line in lines]
