"""``pyserve replica``: replicas that nobody's launcher has started make an application."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import grpc
import httpx
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import pyserve
from tests.mesh.start.processes import (
    END_TIMEOUT_S,
    Command,
    address_of,
    application,
    command,
    far_from,
    standing,
    status_of,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
WEB = "tests.mesh.ingress.apps:web"
SMALL = "tests.mesh.apps.small:Small"


def running(environment: dict[str, str], deployment: str) -> int:
    """Count the replicas of a deployment that run."""
    applications = status_of(environment)["applications"]
    if "default" not in applications:
        return 0
    found = applications["default"]["deployments"].get(deployment, {"replicas": []})
    return sum(each["state"] == "RUNNING" for each in found["replicas"])


def echo(address: str) -> bytes:
    """Return what a replica of Small puts before an empty payload."""
    with grpc.insecure_channel(address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        payload: bytes = stub.Echo(echo_pb2.EchoRequest(), timeout=END_TIMEOUT_S).payload
    return payload


def answers(address: str) -> bool:
    """Say whether the ingress knows a replica of Small, a moment after the controller does."""
    try:
        echo(address)
    except grpc.RpcError:
        return False
    return True


def test_application_is_the_replicas_that_have_joined(mesh_environment: dict[str, str]) -> None:
    with (
        standing(mesh_environment) as mesh,
        command(mesh_environment, "replica", WEB, "--deployment", "Child") as child,
        command(mesh_environment, "replica", WEB, "--deployment", "Web") as first,
        command(mesh_environment, "replica", WEB, "--deployment", "Web") as second,
    ):
        address = address_of(mesh_environment)
        wait_until(lambda: 2 == running(mesh_environment, "Web"), END_TIMEOUT_S)
        wait_until(lambda: 1 == running(mesh_environment, "Child"), END_TIMEOUT_S)
        found = status_of(mesh_environment)["applications"]["default"]
        assert ("RUNNING", "/") == (found["status"], found["route_prefix"])
        wait_until(lambda: 200 == _get(address).status_code, END_TIMEOUT_S)
        processes = {first.process.pid, second.process.pid}
        # The ingress hears of the second a moment after the controller does.
        seen: set[int] = set()

        def both_answer() -> bool:
            seen.add(_pid(address))
            return processes == seen

        wait_until(both_answer, END_TIMEOUT_S)
        # One that is told to go loses no call.
        first.process.send_signal(signal.SIGTERM)
        while first.process.poll() is None:
            assert _pid(address) in processes
        assert 0 == first.process.wait()
        assert second.process.pid == _pid(address)
        assert 0 == second.end()
        assert 0 == child.end()
        wait_until(lambda: {} == status_of(mesh_environment)["applications"], END_TIMEOUT_S)
        assert 0 == mesh.end()


def _get(address: str) -> httpx.Response:
    return httpx.get(f"http://{address}/", timeout=END_TIMEOUT_S)


def _pid(address: str) -> int:
    answer = _get(address)
    assert 200 == answer.status_code, answer.text
    pid: int = answer.json()["pid"]
    return pid


def test_new_generation_replaces_the_one_before(mesh_environment: dict[str, str]) -> None:
    def start(prefix: str) -> Command:
        arguments = ("replica", SMALL, f"prefix={prefix}", "--deployment", "Small")
        return stack.enter_context(command(mesh_environment, *arguments))

    with standing(mesh_environment), ExitStack() as stack:
        address = address_of(mesh_environment)
        old = [start("old"), start("old")]
        wait_until(lambda: 2 == running(mesh_environment, "Small"), END_TIMEOUT_S)
        wait_until(lambda: answers(address), END_TIMEOUT_S)
        assert b"old" == echo(address)
        start("new")
        wait_until(lambda: 3 == running(mesh_environment, "Small"), END_TIMEOUT_S)
        assert all(each.process.poll() is None for each in old)
        start("new")
        for each in old:
            assert 0 == each.process.wait(END_TIMEOUT_S)
        assert {b"new"} == {echo(address) for _ in range(10)}


def test_killed_replica_is_out_at_once_and_its_place_is_kept(
    mesh_environment: dict[str, str],
) -> None:
    arguments = ("replica", SMALL, "--deployment", "Small")
    with standing(mesh_environment):
        address = address_of(mesh_environment)
        with command(mesh_environment, *arguments) as dies:
            wait_until(lambda: 1 == running(mesh_environment, "Small"), END_TIMEOUT_S)
            wait_until(lambda: answers(address), END_TIMEOUT_S)
            os.kill(dies.process.pid, signal.SIGKILL)
            dies.process.wait(END_TIMEOUT_S)
        with command(mesh_environment, *arguments):
            # Parked in the meantime, since somebody restarts it.
            assert b"" == echo(address)


def test_replica_of_what_the_mesh_has_deployed_is_refused(
    mesh_environment: dict[str, str],
) -> None:
    with standing(mesh_environment), application(mesh_environment):
        done = pyserve("replica", WEB, "--deployment", "Web", environment=mesh_environment)
        assert 1 == done.returncode
        assert "was deployed to this mesh, which starts its replicas itself" in done.stderr
        assert "Traceback" not in done.stderr


def test_deploy_of_what_others_have_started_is_refused(mesh_environment: dict[str, str]) -> None:
    with (
        standing(mesh_environment),
        command(mesh_environment, "replica", SMALL, "--deployment", "Small"),
    ):
        wait_until(lambda: 1 == running(mesh_environment, "Small"), END_TIMEOUT_S)
        done = pyserve("run", WEB, environment=mesh_environment)
        assert 1 == done.returncode
        assert "consists of replicas that others have started" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ((SMALL,), 2, "--deployment"),
        ((SMALL, "--deployment", "Smal"), 2, "did you mean Small?"),
        (("tests.mesh.apps.nowhere:app", "--deployment", "X"), 1, "tests.mesh.apps.nowhere"),
    ],
)
def test_replica_that_cannot_be_says_why(
    arguments: tuple[str, ...], status: int, says: str, mesh_environment: dict[str, str]
) -> None:
    with command(mesh_environment, "start", "--no-ingress") as mesh:
        mesh.shows("is ready at")
        done = pyserve("replica", *arguments, environment=mesh_environment)
        assert (status, True) == (done.returncode, says in done.stderr), done.stderr
        assert "Traceback" not in done.stderr


def test_replica_whose_constructor_raises_says_so_where_it_was_started(
    mesh_environment: dict[str, str],
) -> None:
    with standing(mesh_environment):
        done = pyserve(
            *("replica", "tests.mesh.apps.broken:Raises", "--deployment", "Raises"),
            environment=mesh_environment,
        )
    assert 1 == done.returncode
    assert "the constructor of Raises (" in done.stderr
    assert "FileNotFoundError: model.npz is not there" in done.stderr


def test_replica_without_a_mesh_says_where_to_find_one(mesh_environment: dict[str, str]) -> None:
    done = pyserve("replica", SMALL, "--deployment", "Small", environment=mesh_environment)

    assert 1 == done.returncode
    assert "name its controller with PYSERVE_CONTROLLER" in done.stderr


def test_replica_joins_over_tcp_with_the_token_in_a_file(
    mesh_environment: dict[str, str],
) -> None:
    """As in a container: another home, and the controller by its address."""
    near = {**mesh_environment, "PYSERVE_CONTROLLER": "127.0.0.1:0"}
    with standing(near) as mesh:
        far = far_from(mesh, mesh_environment)
        with command(far, "replica", SMALL, "--deployment", "Small"):
            wait_until(lambda: 1 == running(mesh_environment, "Small"), END_TIMEOUT_S)
            wait_until(lambda: answers(address_of(mesh_environment)), END_TIMEOUT_S)
