"""``pyserve cordon`` and ``uncordon`` against a mesh of real processes."""

from __future__ import annotations

import json

import grpc
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import foreground, pyserve

pytestmark = pytest.mark.slow
_TIMEOUT_S = 40.0


def test_calls_wait_while_the_only_replica_is_out_of_rotation(
    mesh_environment: dict[str, str],
) -> None:
    with (
        foreground(mesh_environment, "tests.mesh.apps.small:build") as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        echo = echo_pb2_grpc.EchoStub(channel)
        request = echo_pb2.EchoRequest(payload=b"a")
        assert echo.Echo(request, timeout=_TIMEOUT_S).payload
        name, state = replica(mesh_environment)
        assert "RUNNING" == state

        done = pyserve("cordon", name, environment=mesh_environment)
        assert (0, f"pyserve: {name} is out of rotation\n") == (done.returncode, done.stdout)
        assert "has no replica in rotation now" in done.stderr
        assert (name, "CORDONED") == replica(mesh_environment)
        waiting = echo.Echo.future(request, timeout=_TIMEOUT_S)
        with pytest.raises(grpc.FutureTimeoutError):
            waiting.result(timeout=1.0)

        back = pyserve("uncordon", name, environment=mesh_environment)
        assert (0, f"pyserve: {name} is back in rotation\n") == (back.returncode, back.stdout)
        assert waiting.result(timeout=_TIMEOUT_S).payload
        again = pyserve("uncordon", name, environment=mesh_environment)
        assert "changes nothing" in again.stdout


def test_an_unknown_name_is_an_error_that_tells_the_known_ones(
    mesh_environment: dict[str, str],
) -> None:
    with foreground(mesh_environment, "tests.mesh.apps.small:build"):
        name, _ = replica(mesh_environment)
        wrong = pyserve("cordon", "Nobody#1", environment=mesh_environment)
        assert 1 == wrong.returncode
        assert f"there is no replica 'Nobody#1'; there is: {name}" in wrong.stderr


def test_without_a_mesh_there_is_nothing_to_cordon(mesh_environment: dict[str, str]) -> None:
    done = pyserve("cordon", "node:here", environment=mesh_environment)

    assert 1 == done.returncode
    assert "nothing to cordon" in done.stderr


def replica(environment: dict[str, str]) -> tuple[str, str]:
    """Return the only replica, and how it is."""
    status = json.loads(pyserve("status", "--json", environment=environment).stdout)
    (application,) = status["applications"].values()
    (deployment,) = application["deployments"].values()
    (found,) = deployment["replicas"]
    return found["replica_id"], found["state"]
