"""Replicas that fork, get signals, die, or lose their health, under calls."""

import os
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import foreground, status_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 40.0


def replicas(environment: dict[str, str]) -> list[dict[str, Any]]:
    (deployment,) = status_of(environment)["applications"]["default"]["deployments"].values()
    found: list[dict[str, Any]] = deployment["replicas"]
    return found


def running(environment: dict[str, str]) -> list[int]:
    """Return the process ids of the replicas that serve."""
    return [each["pid"] for each in replicas(environment) if each["state"] == "RUNNING"]


def test_a_fork_of_user_code_gets_its_own_signals(mesh_environment: dict[str, str]) -> None:
    """SIGTERM to the child ends the child; the replica does not take it for its own."""
    with foreground(mesh_environment) as mesh, grpc.insecure_channel(mesh.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        before = running(mesh_environment)
        for _ in range(5):
            assert "SIGTERM" == stub.Fork(echo_pb2.ForkRequest(), timeout=40).runtime_error
        assert b"x" == stub.Echo(echo_pb2.EchoRequest(payload=b"x"), timeout=30).payload
        assert before == running(mesh_environment)


def test_a_forked_child_keeps_no_listener_and_cannot_use_the_runtime(
    mesh_environment: dict[str, str],
) -> None:
    with (
        foreground(mesh_environment, "services.echo.service:app") as mesh,
        grpc.insecure_channel(mesh.address) as channel,
    ):
        reply = echo_pb2_grpc.EchoStub(channel).Fork(echo_pb2.ForkRequest(), timeout=30)
        assert [] == list(reply.listening)
        assert "RuntimeError" == reply.runtime_error_type
        assert "forked process" in reply.runtime_error


def test_a_replica_that_gets_sigterm_finishes_its_calls_and_is_replaced(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment) as mesh, grpc.insecure_channel(mesh.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        (pid,) = running(mesh_environment)
        slow = stub.Perform.future(echo_pb2.PerformRequest(delay_s=4.0, payload=b"x"), timeout=40)
        wait_until(lambda: "performs for" in mesh.output())
        os.kill(pid, signal.SIGTERM)
        assert pid == slow.result(_TIMEOUT_S).facts.pid
        wait_until(lambda: running(mesh_environment) not in ([], [pid]), _TIMEOUT_S)
        assert pid != stub.Perform(echo_pb2.PerformRequest(), timeout=40).facts.pid
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), _TIMEOUT_S)


def test_a_killed_replica_is_replaced_and_its_socket_removed(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment) as mesh, grpc.insecure_channel(mesh.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        (pid,) = running(mesh_environment)
        slow = stub.Perform.future(echo_pb2.PerformRequest(delay_s=30.0), timeout=60)
        wait_until(lambda: "performs for" in mesh.output())
        os.kill(pid, signal.SIGKILL)
        error = slow.exception(_TIMEOUT_S)
        assert isinstance(error, grpc.RpcError)
        assert grpc.StatusCode.UNAVAILABLE is slow.code()
        assert pid != stub.Perform(echo_pb2.PerformRequest(), timeout=40).facts.pid
        home = Path(mesh_environment["PYSERVE_HOME"])
        wait_until(lambda: len(list(home.rglob("replica-*.sock"))) == 1)


def test_the_hooks_at_the_end_of_a_replica_run_once_each(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with foreground(mesh_environment, "tests.mesh.apps.small:Small", f"closing={notes}") as mesh:
        mesh.process.send_signal(signal.SIGTERM)
        assert 0 == mesh.process.wait(_TIMEOUT_S)
    assert ["aclose", "__del__"] == notes.read_text().split()


@pytest.mark.parity("S-69")
def test_a_replica_that_says_it_is_not_healthy_is_replaced(
    mesh_environment: dict[str, str],
) -> None:
    with (
        foreground(mesh_environment, "tests.mesh.apps.ailing:app") as mesh,
        grpc.insecure_channel(mesh.address) as channel,
    ):
        stub = echo_pb2_grpc.EchoStub(channel)
        (pid,) = running(mesh_environment)
        stub.Echo(echo_pb2.EchoRequest(), timeout=30)  # makes it ill
        wait_until(lambda: running(mesh_environment) not in ([], [pid]), _TIMEOUT_S)
        assert "the health check failed: check_health raised RuntimeError: ill" in mesh.output()
