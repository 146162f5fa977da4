"""Many replicas on a small machine: how many start at a time, and what is said of the others."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import DeploymentStatus, DeploymentStatusOverview, read_status
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import ROOT, Foreground, foreground
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
_TIMEOUT_S = 100.0
_COUNT = 9
# Of the four places that one processor has, the last is for other deployments.
_STARTS_MAX = 3


@pytest.fixture
def one_processor() -> Iterator[None]:
    """Processes that are started meanwhile may use one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.long
@pytest.mark.usefixtures("one_processor")
def test_few_of_many_replicas_start_at_a_time_and_others_are_not_held_up(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    sign, log = tmp_path / "sign", tmp_path / "many.log"
    arguments = ("tests.mesh.apps.waiting:many", f"sign={sign}", f"count={_COUNT}")
    with foreground(mesh_environment) as mesh, log.open("wb") as output:
        many = subprocess.Popen(
            [sys.executable, "-m", "pyserve", "run", *arguments, "--name", "many"],
            cwd=ROOT,
            env=mesh_environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            waits = f"{_COUNT - _STARTS_MAX} more wait for their turn: 4 start at a time"
            wait_until(
                lambda: waits in deployment(mesh_environment, "many", "Late").message, _TIMEOUT_S
            )
            wait_until(lambda: waits in log.read_text(), _TIMEOUT_S)
            late = deployment(mesh_environment, "many", "Late")
            assert ["STARTING"] * _STARTS_MAX == [each.state for each in late.replicas]

            replaced_under(mesh_environment, mesh)

            sign.touch()
            wait_until(lambda: most_ready(mesh_environment), _TIMEOUT_S)
            many.send_signal(signal.SIGINT)
            assert 0 == many.wait(_TIMEOUT_S), log.read_text()
        finally:
            many.kill()
            many.wait()
        mesh.process.send_signal(signal.SIGINT)
        assert 0 == mesh.process.wait(_TIMEOUT_S)


def deployment(
    environment: dict[str, str], application: str, name: str
) -> DeploymentStatusOverview:
    """Ask without a process of its own, whose start takes long on a busy machine."""
    address = find_mesh(read_settings({"PYSERVE_HOME": environment["PYSERVE_HOME"]}))
    assert address is not None
    with closing(ControlClient(address)) as client:
        found = read_status(client.status()).applications
    if application not in found:
        return DeploymentStatusOverview(name, DeploymentStatus.UPDATING, "", 0, (), ())
    return found[application].deployments[name]


def most_ready(environment: dict[str, str]) -> bool:
    """See on the way there that no more than may start do."""
    states = [each.state for each in deployment(environment, "many", "Late").replicas]
    assert states.count("STARTING") <= _STARTS_MAX
    return states == ["RUNNING"] * _COUNT


def replaced_under(environment: dict[str, str], mesh: Foreground) -> None:
    (before,) = deployment(environment, "default", "Small").replicas
    os.kill(before.pid, signal.SIGKILL)

    def is_replaced() -> bool:
        running = deployment(environment, "default", "Small").replicas
        return any(each.state == "RUNNING" and each.pid != before.pid for each in running)

    wait_until(is_replaced, _TIMEOUT_S)
    with grpc.insecure_channel(mesh.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        assert b"x" == stub.Echo(echo_pb2.EchoRequest(payload=b"x"), timeout=_TIMEOUT_S).payload
