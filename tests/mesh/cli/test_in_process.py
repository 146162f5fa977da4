"""``pyserve run --in-process``: one process, gRPC and HTTP on a port, and breakpoints."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import ROOT, Foreground, foreground, pyserve
from tests.support.leftovers import SESSION_VARIABLE, processes_of
from tests.support.reflected import VERSIONS, files_of

pytestmark = pytest.mark.slow
_TIMEOUT_S = 40.0


@contextmanager
def debugged(
    environment: dict[str, str], folder: Path, target: str, at_the_end: str = ""
) -> Iterator[str]:
    """Run ``target`` with a debugger at the terminal that is told to go on; yield its address.

    In the end it has to have stopped with the text "ha". Then it gets SIGTERM, or a Ctrl-C and
    what the debugger is told ``at_the_end``.
    """
    log = folder / "run.log"
    command = [
        *(sys.executable, "-m", "pyserve", "run", target),
        *("--in-process", "--address", "127.0.0.1:0"),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        address = Foreground(process, log).address
        assert process.stdin is not None
        process.stdin.write(b"p 'stopped with ' + text\ncontinue\n")
        process.stdin.flush()
        yield address
        assert "'stopped with ha'" in log.read_text()
        process.send_signal(signal.SIGINT if at_the_end else signal.SIGTERM)
        if at_the_end:
            process.stdin.write(f"{at_the_end}\n".encode())
            process.stdin.flush()
        assert 0 == process.wait(_TIMEOUT_S), log.read_text()
    finally:
        process.kill()
        process.communicate()


def test_everything_runs_in_one_process_and_knows_whose_it_is(
    mesh_environment: dict[str, str],
) -> None:
    with (
        foreground(mesh_environment, "tests.mesh.apps.paused:app", "--in-process") as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        stub = echo_pb2_grpc.EchoStub(channel)
        stream = stub.EchoStream(echo_pb2.StreamRequest(messages=2), timeout=_TIMEOUT_S)
        assert [b"Paused", b"Paused"] == [reply.payload for reply in stream]
        reply = stub.Perform(echo_pb2.PerformRequest(payload=b"x"), timeout=_TIMEOUT_S)
        assert "Paused#local" == reply.facts.replica_id
        others = processes_of(mesh_environment[SESSION_VARIABLE])
        assert [] == [each for each in others if not each.startswith(f"{running.pid}: ")]
        assert "Upper wants 2 replicas; one runs here" in running.output()
        for version in VERSIONS:
            symbols = ["services.echo.Echo.Perform", "services.echo.Echo.Nothing"]
            found = files_of(channel, version, symbols)
            assert [echo_pb2.DESCRIPTOR.name, grpc.StatusCode.NOT_FOUND.value[0]] == found
        called = pyserve(
            *("call", "services.echo.Echo/Perform", "payload=x", "--address", running.address),
            environment=mesh_environment,
        )
        assert 0 == called.returncode, called.stderr
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(_TIMEOUT_S)


def test_steps_answer_at_all_doors(mesh_environment: dict[str, str]) -> None:
    with (
        foreground(mesh_environment, "tests.mesh.stepping.apps:app", "--in-process") as running,
        grpc.insecure_channel(running.address) as channel,
        httpx.Client(base_url=f"http://{running.address}", timeout=_TIMEOUT_S) as http,
    ):
        stub = echo_pb2_grpc.EchoStub(channel)
        stream = stub.EchoStream(echo_pb2.StreamRequest(messages=2), timeout=_TIMEOUT_S)
        assert [b"1", b"2"] == [reply.payload for reply in stream]
        told = {"pyserve-cost": "2", "pyserve-cache-keys": "pear"}
        assert {"made": 2} == http.post("/", json={"count": 2}, headers=told).json()
        events = http.post("/", json={"count": 2}, headers={"accept": "text/event-stream"})
        assert 'data: {"made":1}\n\ndata: {"made":2}\n\n' == events.text
        assert 413 == http.post("/", json={"count": 1, "cost": 101}).status_code
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(_TIMEOUT_S)


@pytest.mark.parity("G-56")
def test_a_breakpoint_stops_there_and_the_debugger_reads_the_terminal(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    with debugged(mesh_environment, tmp_path, "tests.mesh.apps.paused:app") as address:
        with grpc.insecure_channel(address) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            reply = stub.Echo(echo_pb2.EchoRequest(payload=b"ha"), timeout=_TIMEOUT_S)
        assert b"HA by Upper, Paused" == reply.payload


def test_whoever_quits_the_debugger_after_ctrl_c_ends_the_run(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    """After a breakpoint Ctrl-C is the debugger's, which opens where the loop waits."""
    with debugged(mesh_environment, tmp_path, "tests.mesh.apps.web:stopping", "quit") as address:
        found = httpx.post(f"http://{address}/", json="ha", timeout=_TIMEOUT_S)
        assert "ha by Stopping" == found.text
    assert "Traceback" not in (tmp_path / "run.log").read_text()


def test_web_applications_and_websockets_are_answered(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment, "tests.mesh.apps.web:app", "--in-process") as running:
        address = running.address
        assert f"pyserve: plain HTTP at http://{address}/" in running.output()
        with httpx.Client(base_url=f"http://{address}", timeout=_TIMEOUT_S) as client:
            found = client.get("/upper/ha", headers={"x-request-id": "mine"})
            assert {"text": "HA", "by": "Web"} == found.json()
            assert "mine" == found.headers["x-request-id"]
            assert "Web" == client.get("/plain").json()
            assert 404 == client.get("/nowhere").status_code
            by_json = client.post("/services.echo.Echo/Echo", json={"payload": "aGE="})
            assert {"payload": "aGE="} == by_json.json()
        with connect(f"ws://{address}/chat", proxy=None) as socket:
            socket.send("hi")
            assert "HI" == socket.recv(_TIMEOUT_S)
            running.process.send_signal(signal.SIGINT)
            with pytest.raises(ConnectionClosed):
                socket.recv(_TIMEOUT_S)
        assert 0 == running.process.wait(_TIMEOUT_S)
        assert "the web application ends" in running.output()


def test_a_breakpoint_in_a_request_of_plain_http_stops_there(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    with debugged(mesh_environment, tmp_path, "tests.mesh.apps.web:stopping") as address:
        found = httpx.post(f"http://{address}/", json="ha", timeout=_TIMEOUT_S)
        assert "ha by Stopping" == found.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--controller", "127.0.0.1:1"], "--controller has no meaning with --in-process"),
        (["--route-prefix", "/api"], "--route-prefix has no meaning with --in-process"),
    ],
)
def test_options_of_a_mesh_are_refused(
    arguments: list[str], text: str, mesh_environment: dict[str, str]
) -> None:
    done = pyserve(
        *("run", "tests.mesh.apps.small:app", "--in-process", *arguments),
        environment=mesh_environment,
    )

    assert 2 == done.returncode
    assert text in " ".join(done.stderr.split())


def test_access_rules_are_checked(mesh_environment: dict[str, str], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n- name: health\n  paths: [/-/healthz]\n  anonymous: true\n")
    environment = {**mesh_environment, "PYSERVE_ACCESS_FILE": str(rules)}
    with foreground(environment, "tests.mesh.apps.web:app", "--in-process") as running:
        url = f"http://{running.address}"
        assert 401 == httpx.get(f"{url}/plain", timeout=_TIMEOUT_S).status_code
        assert 200 == httpx.get(f"{url}/-/healthz", timeout=_TIMEOUT_S).status_code


def test_a_constructor_that_raises_ends_it_with_the_traceback(
    mesh_environment: dict[str, str],
) -> None:
    done = pyserve(
        *("run", "tests.mesh.apps.broken:raises", "--in-process"), environment=mesh_environment
    )

    assert 1 == done.returncode
    assert "Traceback" in done.stderr
