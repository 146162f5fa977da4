"""``pyserve run``, ``call``, ``status`` and ``shutdown`` against a mesh of real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import yaml

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import ROOT, foreground, pyserve, status_of
from tests.support.leftovers import SESSION_VARIABLE, processes_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 40.0


def test_the_commands_work_together(mesh_environment: dict[str, str]) -> None:
    with foreground(
        mesh_environment, "tests.mesh.apps.small:build", "prefix=hey ", "--name", "greeter"
    ) as running:
        called = pyserve(
            "call", "services.echo.Echo/Echo", "payload=you", environment=mesh_environment
        )
        assert (0, '{"payload": "aGV5IHlvdQ=="}\n') == (called.returncode, called.stdout)
        wait_until(lambda: "serving services.echo.Echo" in running.output())
        assert "serving greeter.Built" not in running.output()
        refused = pyserve("call", "greeter.Built/Echo", environment=mesh_environment)
        assert "no .proto of 'greeter.Built'" in refused.stderr
        status = pyserve("status", "--json", environment=mesh_environment)
        (application,) = json.loads(status.stdout)["applications"].values()
        (deployment,) = application["deployments"].values()
        assert ("greeter", "Built", "HEALTHY") == (
            application["name"],
            deployment["name"],
            deployment["status"],
        )
        assert ({"RUNNING": 1}, "CONFIG_UPDATE_COMPLETED") == (
            deployment["replica_states"],
            deployment["status_trigger"],
        )
        told = yaml.safe_load(pyserve("status", "--yaml", environment=mesh_environment).stdout)
        assert ["HEALTHY"] == list(told["proxies"].values())
        assert "RUNNING" == told["applications"]["greeter"]["status"]
        text = pyserve("status", environment=mesh_environment).stdout
        assert "Built  HEALTHY  1/1 replicas  services.echo.Echo" in text
        ended = pyserve("shutdown", environment=mesh_environment)
        assert (0, "pyserve: the mesh has ended\n") == (ended.returncode, ended.stdout)
        assert 0 == running.process.wait(_TIMEOUT_S)


def test_a_deployment_without_replicas_is_told_as_such(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment, "tests.mesh.apps.small:none") as running:
        wait_until(lambda: "Small has no replicas (num_replicas=0)" in running.output())
        _, _, after = running.output().partition("is ready at ")
        assert "plain HTTP" not in after
        assert "serving" not in after
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(_TIMEOUT_S)


def test_a_second_run_joins_the_mesh_and_leaves_it_alone(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    with foreground(mesh_environment) as first:
        log = tmp_path / "second.log"
        with log.open("wb") as output:
            second = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pyserve", "run"),
                    *("tests.mesh.apps.small:build", "--name", "other"),
                ],
                cwd=ROOT,
                env=mesh_environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_until(
            lambda: "is ready at" in log.read_text() or second.poll() is not None, _TIMEOUT_S
        )
        assert "attached to the mesh of process" in log.read_text()
        assert first.address in log.read_text()
        second.send_signal(signal.SIGTERM)
        assert 0 == second.wait(_TIMEOUT_S), log.read_text()
        status = pyserve("status", "--json", environment=mesh_environment)
        assert ["default"] == list(json.loads(status.stdout)["applications"])
        first.process.send_signal(signal.SIGINT)
        assert 0 == first.process.wait(_TIMEOUT_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_calls_in_flight_finish(
    number: signal.Signals, mesh_environment: dict[str, str]
) -> None:
    with foreground(mesh_environment) as running, grpc.insecure_channel(running.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        stub.Echo(echo_pb2.EchoRequest(), timeout=_TIMEOUT_S)
        slow = stub.Perform.future(
            echo_pb2.PerformRequest(delay_s=3.0, payload=b"x"), timeout=_TIMEOUT_S
        )
        wait_until(lambda: "performs for" in running.output())
        running.process.send_signal(number)
        assert b"x" == slow.result(_TIMEOUT_S).payload
        assert 0 == running.process.wait(_TIMEOUT_S)
        assert "draining" in running.output()


def test_a_second_signal_stops_at_once(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment) as running, grpc.insecure_channel(running.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        slow = stub.Perform.future(echo_pb2.PerformRequest(delay_s=60.0), timeout=100)
        wait_until(lambda: "performs for" in running.output())
        running.process.send_signal(signal.SIGINT)
        wait_until(lambda: "draining" in running.output())
        running.process.send_signal(signal.SIGINT)
        assert 128 + signal.SIGINT == running.process.wait(10)
        assert isinstance(slow.exception(_TIMEOUT_S), grpc.RpcError)
        wait_until(lambda: not processes_of(mesh_environment[SESSION_VARIABLE]), 30)


def test_killing_the_foreground_command_leaves_nothing(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment) as running:
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        wait_until(lambda: not processes_of(mesh_environment[SESSION_VARIABLE]), 30)


def test_killing_the_ingress_takes_all_others_and_their_sockets_along(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment) as running:
        status = json.loads(pyserve("status", "--json", environment=mesh_environment).stdout)
        (ingress,) = status["ingresses"]
        os.kill(ingress["pid"], signal.SIGKILL)
        assert running.process.wait(_TIMEOUT_S) == 1
        wait_until(lambda: not processes_of(mesh_environment[SESSION_VARIABLE]), 30)
        # The fixture looks for socket files.


def test_a_signal_while_replicas_start_ends_in_order(mesh_environment: dict[str, str]) -> None:
    """Also when the constructor holds its replica's event loop."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pyserve", "run", "tests.mesh.apps.slow:app"),
            *("--address", "127.0.0.1:0"),
        ],
        cwd=ROOT,
        env=mesh_environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = next(line for line in process.stderr if "Slow: 0 of 1 replicas ready" in line)
    assert "starts" in line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=_TIMEOUT_S)
    assert (0, True) == (process.returncode, "draining" in rest), rest
    assert "Traceback" not in rest


def test_the_context_is_there_in_the_constructor(mesh_environment: dict[str, str]) -> None:
    with foreground(mesh_environment, "tests.mesh.apps.small:app") as running:
        (replica,) = status_of(mesh_environment)["applications"]["default"]["deployments"]["Small"][
            "replicas"
        ]
        with grpc.insecure_channel(running.address) as channel:
            reply = echo_pb2_grpc.EchoStub(channel).Perform(echo_pb2.PerformRequest(), timeout=30)
        assert replica["replica_id"] == reply.facts.replica_id
        assert replica["replica_id"].encode() == reply.facts.metadata[0].value
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(_TIMEOUT_S)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_addresses_of_ipv6_are_advertised_as_others_dial_them(
    host: str, mesh_environment: dict[str, str]
) -> None:
    environment = {
        **mesh_environment,
        "PYSERVE_BIND_HOST": host,
        "PYSERVE_ADVERTISE_HOST": host,
    }
    with foreground(environment) as running:
        record = json.loads((Path(environment["PYSERVE_HOME"]) / "mesh.json").read_text())
        assert record["controller_tcp"].startswith("[::1]:")
        asked = pyserve(
            *("status", "--json", "--controller", record["controller_tcp"]), environment=environment
        )
        deployments = json.loads(asked.stdout)["applications"]["default"]["deployments"]
        (replica,) = deployments["Small"]["replicas"]
        assert replica["address"].startswith("[::1]:")
        host_of_replica, _, port = replica["address"].rpartition(":")
        socket.create_connection((host_of_replica.strip("[]"), int(port)), 30).close()
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(_TIMEOUT_S)
