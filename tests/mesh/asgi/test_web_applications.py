"""Web applications behind the ingress: methods as routes, streams, clients that leave, drains."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h11
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import pyserve
from tests.contract.fastapi.exchange import Asked, ask
from tests.mesh.asgi.apps import logged
from tests.mesh.commands import pyserve as command
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_ROOT = Path(__file__).resolve().parents[3]
_ANY_PORT = ("--address", "127.0.0.1:0")


def _get(mesh: RunningMesh, path: str) -> Any:
    answered = ask(mesh.address, Asked("GET", path))
    assert 200 == answered.status, answered
    return json.loads(answered.body)


def _send(mesh: RunningMesh, path: str, *headers: str) -> socket.socket:
    """Send a GET and leave the connection open."""
    host, _, port = mesh.address.rpartition(":")
    wire = socket.create_connection((host, int(port)), timeout=20)
    lines = [f"GET {path} HTTP/1.1", "host: h", *headers, "", ""]
    wire.sendall("\r\n".join(lines).encode())
    return wire


@pytest.mark.parity("S-10")
def test_methods_are_routes_with_query_body_and_the_state_of_self(mesh: RunningMesh) -> None:
    asked = Asked("POST", "/detect?video_url=s3://v&batch_size=5")
    assert {"url": "s3://v", "frames": [0, 10, 20]} == json.loads(ask(mesh.address, asked).body)
    body = json.dumps({"factor": 3}).encode()
    changed = ask(
        mesh.address, Asked("PUT", "/settings/a", [("content-type", "application/json")], body)
    )
    assert {"factor": 3, "label": "a none"} == json.loads(changed.body)
    assert {"url": "s3://v", "frames": [0, 15, 30]} == json.loads(ask(mesh.address, asked).body)
    wrong = ask(mesh.address, Asked("POST", "/detect?batch_size=0"))
    assert (422, ["video_url", "batch_size"]) == (
        wrong.status,
        [each["loc"][1] for each in json.loads(wrong.body)["detail"]],
    )
    assert {"message": "Processed (blocking)"} == _get(mesh, "/blocking")
    assert {"message": "Processed (non-blocking)"} == _get(mesh, "/non-blocking")


@pytest.mark.parity("S-10")
def test_the_page_of_documents_is_served(mesh: RunningMesh) -> None:
    page = ask(mesh.address, Asked("GET", "/docs"))
    assert 200 == page.status
    assert b"swagger-ui" in page.body
    paths = _get(mesh, "/openapi.json")["paths"]
    assert "/detect" in paths
    names = [each["name"] for each in paths["/detect"]["post"]["parameters"]]
    assert ["video_url", "batch_size"] == names


def test_one_name_may_stand_for_two_routes_and_routes_may_come_later(mesh: RunningMesh) -> None:
    factor = _get(mesh, "/level")["level"]
    changed = ask(mesh.address, Asked("PUT", "/level?plus=5"))
    assert {"level": factor + 5} == json.loads(changed.body)
    assert "no class" == _get(mesh, "/later/function")
    assert 3 * factor == _get(mesh, "/later/method?number=3")


def test_handles_call_the_methods_that_are_no_routes(mesh: RunningMesh) -> None:
    handle = pyserve.get_deployment_handle("Frames", "default")
    factor = handle.scaled.remote(1).result(timeout_s=20)
    assert factor * 7 == handle.scaled.remote(7).result(timeout_s=20)


def test_def_endpoints_run_side_by_side(mesh: RunningMesh) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda path: _get(mesh, path), ["/together", "/together"]))
    assert [0, 1] == sorted(found)


def test_a_head_of_a_stream_ends_it(mesh: RunningMesh) -> None:
    for _ in range(3):
        answered = ask(mesh.address, Asked("HEAD", "/endless"))
        assert (200, b"") == (answered.status, answered.body)
    wait_until(lambda: _get(mesh, "/endless-streams") == 0)


def test_each_item_of_an_unbuffered_stream_is_a_chunk_of_its_own(mesh: RunningMesh) -> None:
    connection = h11.Connection(h11.CLIENT)
    items: list[bytes] = []
    with _send(mesh, "/items/500") as wire:
        connection.send(h11.Request(method="GET", target="/items/500", headers=[("host", "h")]))
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                connection.receive_data(wire.recv(65_536))
            elif isinstance(event, h11.Data):
                # What arrives in two reads is two events of one chunk.
                items += [b""] if event.chunk_start else []
                items[-1] += event.data
    assert [b"data: %d\n\n" % number for number in range(500)] == items


@pytest.mark.parity("G-35")
def test_the_first_piece_of_a_stream_arrives_before_the_second_is_made(mesh: RunningMesh) -> None:
    with _send(mesh, "/gated") as wire:
        seen = b""
        while b"first" not in seen:
            seen += wire.recv(65536)
        assert b"second" not in seen
        _get(mesh, "/open")
        while b"second" not in seen:
            seen += wire.recv(65536)


@pytest.mark.parity("G-35")
def test_streams_of_handles_become_server_sent_events(mesh: RunningMesh) -> None:
    answered = ask(mesh.address, Asked("GET", "/from-a-handle"))
    assert b"".join(b"data: %d\n\n" % number for number in range(4)) == answered.body
    assert [b"text/event-stream; charset=utf-8"] == answered.header(b"content-type")


@pytest.mark.parity("G-36")
def test_a_client_that_leaves_cancels_the_endpoint_and_its_calls(mesh: RunningMesh) -> None:
    _leave(mesh, "/wait/left")


@pytest.mark.parity("G-36")
def test_a_client_may_leave_and_have_its_request_finished(mesh: RunningMesh) -> None:
    with _send(mesh, "/unhurried/stays", "x-request-disconnect-disabled: ?1"):
        wait_until(lambda: "stays" in _get(mesh, "/log")["began"])
    with _send(mesh, "/unhurried/goes"):
        wait_until(lambda: "goes" in _get(mesh, "/log")["began"])
    # A client that leaves later is known to have left, and so is the first one.
    _leave(mesh, "/wait/later")
    _get(mesh, "/hurry")
    wanted = {"stays was not told", "goes was told"}
    wait_until(lambda: wanted <= set(_get(mesh, "/log")["finished"]))


def test_a_stream_of_a_handle_is_billed_though_its_client_leaves(mesh: RunningMesh) -> None:
    with _send(mesh, "/billed/leaver") as wire:
        assert wire.recv(65536)
    wait_until(lambda: "leaver billed" in _get(mesh, "/log")["finished"])


def _leave(mesh: RunningMesh, path: str) -> None:
    """Send a request, go, and wait until the call that it has made is cancelled."""
    name = path.rpartition("/")[2]
    numbers = pyserve.get_deployment_handle("Numbers", "default")
    with _send(mesh, path):
        # A call that is cancelled before its task has run knows nothing of it.
        wait_until(lambda: name in numbers.which_began.remote().result(timeout_s=20))
    wait_until(
        lambda: name in numbers.which_were_cancelled.remote().result(timeout_s=20),
        what="the child call was cancelled",
    )


@pytest.mark.parity("G-34")
def test_websockets_both_ways_and_a_client_that_vanishes(mesh: RunningMesh) -> None:
    with connect(f"ws://{mesh.address}/watched/polite", proxy=None) as connection:
        for word in ("one", "two"):
            connection.send(word)
            assert word.upper() == connection.recv(20)
    wait_until(lambda: "polite 1000" in _get(mesh, "/log")["finished"])
    with connect(f"ws://{mesh.address}/watched/upset", proxy=None) as connection:
        connection.close(4001, "no more")
    wait_until(lambda: "upset 4001" in _get(mesh, "/log")["finished"])
    with connect(f"ws://{mesh.address}/watched/rude", proxy=None) as connection:
        connection.send("x")
        assert "X" == connection.recv(20)
        connection.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: "rude 1006" in _get(mesh, "/log")["finished"])


@pytest.mark.parity("G-33")
def test_lifespan_background_and_sockets_in_a_drain(mesh: RunningMesh, tmp_path: Path) -> None:
    """An application built in the replica: everything ends before it shuts down."""
    log = tmp_path / "log"
    pyserve.run(logged(log), name="logged", route_prefix="/logged")
    assert ["constructor", "startup"] == log.read_text().split("\n")[:2]
    with connect(f"ws://{mesh.address}/logged/ws", proxy=None) as connection:
        assert "noted" == _get(mesh, "/logged/")
        pyserve.delete("logged")
        with pytest.raises(ConnectionClosed):
            connection.recv(20)
        assert 1012 == connection.close_code
    wait_until(lambda: "aclose" in log.read_text())
    lines = log.read_text().split("\n")[2:-1]
    assert ["shutdown", "aclose"] == lines[-2:]
    assert ["background begins", "background ends", "socket 1012"] == sorted(lines[:-2])
    assert 404 == ask(mesh.address, Asked("GET", "/logged/")).status


@pytest.mark.parity("G-34")
def test_a_killed_replica_tells_its_sockets_to_come_again(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    pyserve.run(logged(tmp_path / "log"), name="killed", route_prefix="/killed")
    try:
        (replica,) = pyserve.status().applications["killed"].deployments["Logged"].replicas
        with connect(f"ws://{mesh.address}/killed/ws", proxy=None) as connection:
            os.kill(replica.pid, signal.SIGKILL)
            with pytest.raises(ConnectionClosed):
                connection.recv(20)
            assert 1012 == connection.close_code
    finally:
        pyserve.delete("killed")


def test_an_application_of_a_script_travels_by_value(mesh: RunningMesh, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            from __future__ import annotations
            import pyserve
            from fastapi import APIRouter, FastAPI
            from pydantic import BaseModel

            class Order(BaseModel):
                item: str

            app = FastAPI()
            router = APIRouter(prefix="/orders")

            @pyserve.deployment
            @pyserve.ingress(app)
            class Shop:
                def __init__(self, name):
                    self.name = name

                @router.post("/{number}")
                async def order(self, number: int, order: Order) -> dict:
                    return {"shop": self.name, "number": number, "item": order.item}

            app.include_router(router)
            pyserve.run(Shop.bind("corner"), name="script", route_prefix="/script")
            """
        )
    )
    subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYSERVE_HOME": str(mesh.home), "PYTHONPATH": str(_ROOT)},
        check=True,
        timeout=50,
    )
    asked = Asked(
        "POST", "/script/orders/3", [("content-type", "application/json")], b'{"item": "tea"}'
    )
    answered = ask(mesh.address, asked)
    assert {"shop": "corner", "number": 3, "item": "tea"} == json.loads(answered.body)
    pyserve.delete("script")


@pytest.mark.parity("G-33")
@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("broken", 'raise RuntimeError("the model file is not there")'),
        ("leaving", 'raise SystemExit("no model in this folder")'),
    ],
)
def test_a_startup_that_fails_fails_the_deployment(
    attribute: str, says: str, mesh_environment: dict[str, str]
) -> None:
    target = f"tests.mesh.asgi.apps:{attribute}"
    done = command("run", target, *_ANY_PORT, environment=mesh_environment)
    assert 1 == done.returncode
    name = attribute.capitalize()
    assert f"the lifespan of the application of {name} failed at its startup" in done.stderr
    assert says in done.stderr


@pytest.mark.slow
def test_a_startup_that_fails_is_told_before_the_rest_has_ended(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    log, may_end = tmp_path / "run.log", tmp_path / "may_end"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pyserve", "run"),
                "tests.mesh.apps.lingering:app",
                *_ANY_PORT,
            ],
            cwd=_ROOT,
            env={**mesh_environment, "LINGERING_MAY_END": str(may_end)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "Error: deployment 'Web' failed" in log.read_text(), 40)
        assert process.poll() is None
        may_end.touch()
        assert 1 == process.wait(40)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parity("G-39")
def test_middlewares_of_the_mesh_stand_before_its_applications() -> None:
    environment = {"PYSERVE_HTTP_MIDDLEWARES": "tests.mesh.asgi.apps:middlewares"}
    with running_mesh("tests.mesh.asgi.apps:app", environment=environment) as mesh:
        for path, status, stamps in [
            ("/blocking", 200, [b"inner", b"outer"]),
            ("/forbidden", 403, [b"outer"]),
        ]:
            answered = ask(mesh.address, Asked("GET", path))
            found = [value for name, value in answered.headers if name == b"x-stamped"]
            assert (status, stamps) == (answered.status, found)


@pytest.mark.parity("G-39")
def test_middlewares_of_the_mesh_stand_before_plain_python_too() -> None:
    environment = {"PYSERVE_HTTP_MIDDLEWARES": "tests.mesh.asgi.apps:middlewares"}
    with running_mesh("tests.mesh.asgi.apps:plain", environment=environment) as mesh:
        for path, status, stamps, body in [
            ("/", 200, [b"inner", b"outer"], b"5"),
            ("/forbidden", 403, [b"outer"], b"not that"),
        ]:
            answered = ask(mesh.address, Asked("POST", path, body=b"[2, 3]"))
            found = [value for name, value in answered.headers if name == b"x-stamped"]
            assert (status, stamps, body) == (answered.status, found, answered.body)


@pytest.mark.parametrize("attribute", ["app", "plain"])
def test_middlewares_that_cannot_be_made_fail_the_deployment(
    attribute: str, mesh_environment: dict[str, str]
) -> None:
    variables = {"PYSERVE_HTTP_MIDDLEWARES": "tests.mesh.asgi.apps:no_middlewares"}
    environment = {**mesh_environment, **variables}
    target = f"tests.mesh.asgi.apps:{attribute}"
    done = command("run", target, *_ANY_PORT, environment=environment)
    assert 1 == done.returncode
    assert "the middlewares of tests.mesh.asgi.apps:no_middlewares" in done.stderr
    assert "LookupError: no middlewares today" in done.stderr


def test_middlewares_that_nobody_has_are_told_with_their_variable(
    mesh_environment: dict[str, str],
) -> None:
    environment = {**mesh_environment, "PYSERVE_HTTP_MIDDLEWARES": "nope:middlewares"}
    done = command("run", "tests.mesh.asgi.apps:app", *_ANY_PORT, environment=environment)
    assert 1 == done.returncode
    assert "PYSERVE_HTTP_MIDDLEWARES=nope:middlewares: there is no module 'nope'" in done.stderr
