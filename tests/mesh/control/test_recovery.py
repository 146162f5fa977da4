"""A persistent mesh: its controllers come and go, what was deployed stays."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

import pyserve
from benchmarks.chaos.applications import numbered
from benchmarks.chaos.controllers import PersistentMesh, killed_controllers
from pyserve.api.graph import pack
from pyserve.control.discovery import read_record
from pyserve.driver.client import ControlClient
from pyserve.errors import MeshError, MeshUnavailable
from pyserve.types import ApplicationName
from tests.mesh.apps import talking
from tests.support.leftovers import SESSION_VARIABLE, processes_of, sockets_below
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.parity("G-66")]
_TIMEOUT_S = 60.0


class Mesh(PersistentMesh):
    """One whose processes can be told from others."""

    def __init__(self, home: Path, session: str) -> None:
        self.home = home
        self.journal, self.log = home / "journal", home / "log"
        environment = {**os.environ, "PYSERVE_HOME": str(home), SESSION_VARIABLE: session}
        super().__init__(environment, self.log)

    def deploy(self, number: int, **options: Any) -> None:
        """Deploy, and wait until it serves."""
        application = numbered(number, self.journal)
        if options:
            deployment: pyserve.Deployment[object] = application.deployment.options(**options)
            application = deployment.bind(number, str(self.journal))
        self.deploy_application(application)

    def deploy_application(self, application: pyserve.Application) -> None:
        packed = pack(application, ApplicationName("default"))
        with closing(ControlClient(self.address())) as client:
            *_, last = client.deploy(packed, route_prefix=None, timeout_s=_TIMEOUT_S)
        assert "deployed" == last.WhichOneof("kind"), last

    def pids(self) -> list[int]:
        """Return the process ids of the replicas that serve."""
        replicas = self.status().applications["default"].deployments["Numbered"].replicas
        return sorted(each.pid for each in replicas if each.state == "RUNNING")

    def states(self) -> set[str]:
        """Return the states of the replicas of the only deployment."""
        (application,) = self.status().applications.values()
        (deployment,) = application.deployments.values()
        return {each.state for each in deployment.replicas}

    def says(self, text: str) -> bool:
        """Say whether a replica's line is in the log."""
        return f"] {text}\n" in self.log.read_text()

    def delete(self) -> None:
        with closing(ControlClient(self.address())) as client:
            client.delete(ApplicationName("default"))

    def serves(self) -> bool:
        application = self.status().applications.get("default")
        return application is not None and application.deployments["Numbered"].status == "HEALTHY"

    def since(self) -> tuple[float, float]:
        application = self.status().applications["default"]
        return application.since_s, application.deployments["Numbered"].since_s

    def call(self) -> object:
        with attached(self.home):
            return pyserve.get_app_handle("default").remote().result(timeout_s=_TIMEOUT_S)


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    home, session = Path(tempfile.mkdtemp(prefix="pyserve-mesh-", dir="/tmp")), uuid.uuid4().hex
    mesh = Mesh(home, session)
    mesh.start()
    try:
        yield mesh
        if read_record(home) is not None:
            assert 0 == mesh.shut_down()
        wait_until(lambda: not processes_of(session), _TIMEOUT_S, "the mesh has left no process")
        assert [] == sockets_below(home)
    finally:
        for line in processes_of(session):
            with suppress(ProcessLookupError):
                os.kill(int(line.partition(":")[0]), signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.long
async def test_controllers_that_are_killed_in_deploys_cost_no_call_and_start_nothing_twice(
    mesh: Mesh,
) -> None:
    """``make bench NAME=recovery`` does so a hundred times."""
    with attached(mesh.home):
        outcome = await killed_controllers(mesh, mesh.journal, seeds=range(1, 5))
    print(outcome)
    assert [] == outcome.problems


def test_the_same_replicas_serve_a_new_controller_at_the_same_places(mesh: Mesh) -> None:
    mesh.deploy(1)
    wait_until(mesh.serves, _TIMEOUT_S)
    before, record, since = mesh.pids(), read_record(mesh.home), mesh.since()
    assert record is not None
    token = record.address().token

    mesh.kill()
    assert 2 == len([pid for pid in before if psutil.pid_exists(pid)])
    mesh.start()
    # Those that were left by the former controller join this one.
    wait_until(lambda: before == mesh.pids() and mesh.serves(), _TIMEOUT_S)

    assert since == mesh.since()
    assert 0.0 not in since
    again = read_record(mesh.home)
    assert again is not None
    assert (record.controller, record.token_file, token) == (
        again.controller,
        again.token_file,
        again.address().token,
    )
    assert 1 == mesh.call()
    assert 2 == len(mesh.journal.read_text().splitlines())


def test_a_replica_that_dies_while_no_controller_is_there_is_replaced(mesh: Mesh) -> None:
    mesh.deploy(1)
    first, second = mesh.pids()
    mesh.kill()
    os.kill(first, signal.SIGKILL)

    mesh.start()

    wait_until(lambda: second in mesh.pids() and mesh.serves(), _TIMEOUT_S)
    assert first not in mesh.pids()
    assert 3 == len(mesh.journal.read_text().splitlines())
    os.kill(second, signal.SIGKILL)  # One that it has not started, but watches.
    wait_until(lambda: second not in mesh.pids() and mesh.serves(), _TIMEOUT_S)


def test_the_end_of_its_service_keeps_the_applications_and_a_shutdown_does_not(mesh: Mesh) -> None:
    mesh.deploy(1)
    before = mesh.pids()

    assert 0 == mesh.terminate()
    assert [] == [pid for pid in before if psutil.pid_exists(pid)]
    mesh.start()
    wait_until(mesh.serves, _TIMEOUT_S)
    assert 1 == mesh.call()
    assert set(before).isdisjoint(mesh.pids())

    assert 0 == mesh.shut_down()
    mesh.start()
    assert {} == mesh.status().applications


def test_what_replicas_write_reaches_the_log_of_the_controller_that_is_there(
    mesh: Mesh,
) -> None:
    mesh.deploy_application(talking.app)
    with attached(mesh.home):
        handle = pyserve.get_app_handle("default")
        for text in ("to the first", "to nobody", "to the second"):
            if text == "to nobody":
                wait_until(partial(mesh.says, "to the first"), _TIMEOUT_S)
                mesh.kill()
            if text == "to the second":
                mesh.start()
            assert text == handle.remote(text).result(timeout_s=_TIMEOUT_S)
        wait_until(partial(mesh.says, "to the second"), _TIMEOUT_S)
    assert mesh.says("to nobody")
    assert 1 == mesh.log.read_text().count("] to the first\n"), "a line is passed on once"


def test_a_call_in_a_replica_that_drains_is_not_cut_short_by_a_new_controller(
    mesh: Mesh, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    mesh.deploy_application(talking.app)
    with attached(mesh.home):
        handle = pyserve.get_app_handle("default")
        answer = handle.remote("slowly", str(release))
        call = ThreadPoolExecutor(2)
        answered = call.submit(answer.result, timeout_s=_TIMEOUT_S)
        wait_until(partial(mesh.says, "slowly"), _TIMEOUT_S)
        deleting = call.submit(mesh.delete)
        wait_until(lambda: mesh.states() == {"STOPPING"}, _TIMEOUT_S)
        mesh.kill()
        mesh.start()
        wait_until(lambda: mesh.states() == {"STOPPING"}, _TIMEOUT_S)
        release.touch()
        assert "slowly" == answered.result(_TIMEOUT_S)
        assert isinstance(deleting.exception(_TIMEOUT_S), MeshUnavailable)
        call.shutdown()
    wait_until(lambda: not mesh.status().applications, _TIMEOUT_S)


def test_a_second_controller_is_refused_and_the_first_goes_on(mesh: Mesh) -> None:
    mesh.deploy(1, num_replicas=1)
    before = mesh.pids()
    record = read_record(mesh.home)
    assert record is not None

    with pytest.raises(RuntimeError, match=rf"a mesh runs already in .* \(process {record.pid}\)"):
        Mesh(mesh.home, "").start()

    assert before == mesh.pids()
    assert 1 == mesh.call()


def test_a_controller_that_cannot_start_leaves_those_that_serve_alone(mesh: Mesh) -> None:
    mesh.deploy(1)
    before = mesh.pids()
    mesh.kill()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        failed = subprocess.run(
            [sys.executable, "-m", "pyserve.control", "--persistent"],
            env={
                **os.environ,
                "PYSERVE_HOME": str(mesh.home),
                "PYSERVE_DASHBOARD_ADDRESS": address,
            },
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    assert 1 == failed.returncode, failed.stdout
    assert address in failed.stdout

    assert 2 == len([pid for pid in before if psutil.pid_exists(pid)])
    mesh.start()
    wait_until(lambda: before == mesh.pids(), _TIMEOUT_S)


def test_a_deploy_that_cannot_be_written_fails_and_what_serves_goes_on(mesh: Mesh) -> None:
    mesh.deploy(1)
    before = mesh.pids()
    code = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(mesh.home / "mesh.sqlite3")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert b"locked\n" == other.stdout.readline()
        with pytest.raises(MeshError, match="database is locked; end the process that has"):
            mesh.deploy(2)
        assert before == mesh.pids()
        assert 1 == mesh.call()
        other.kill()
    mesh.deploy(2)
    assert 2 == mesh.call()


@pytest.mark.parametrize("spoil", [os.remove, partial(os.truncate, length=0)])
def test_a_state_that_is_gone_is_refused_and_what_serves_goes_on(
    mesh: Mesh, spoil: Callable[[Path], None]
) -> None:
    mesh.deploy(1)
    before = mesh.pids()
    file, copy = mesh.home / "mesh.sqlite3", mesh.home / "mesh.sqlite3.copy"
    wait_until(copy.exists, _TIMEOUT_S, "a copy")
    mesh.kill()
    spoil(file)
    for left in mesh.home.glob("mesh.sqlite3-*"):
        left.unlink()

    with pytest.raises(RuntimeError, match=r"missing or empty.* was not before; to go on with"):
        mesh.start()
    kept = mesh.home / "kept"
    copy.rename(kept)
    with pytest.raises(RuntimeError, match=r"empty, but replicas of it run \(2\), and go on"):
        mesh.start()
    assert 2 == len([pid for pid in before if psutil.pid_exists(pid)])

    shutil.copyfile(kept, file)
    mesh.start()
    wait_until(lambda: before == mesh.pids(), _TIMEOUT_S)
    assert 1 == mesh.call()


def test_a_call_in_a_replica_that_was_never_recorded_is_not_cut_short(
    mesh: Mesh, tmp_path: Path
) -> None:
    """As one that has started while the disk was full."""
    release = tmp_path / "release"
    mesh.deploy_application(talking.app)
    with attached(mesh.home), ThreadPoolExecutor(1) as threads:
        handle = pyserve.get_app_handle("default")
        answer = handle.remote("slowly", str(release))
        answered = threads.submit(answer.result, timeout_s=_TIMEOUT_S)
        wait_until(partial(mesh.says, "slowly"), _TIMEOUT_S)
        mesh.kill()
        with closing(sqlite3.connect(mesh.home / "mesh.sqlite3")) as state:
            assert 1 == state.execute("DELETE FROM replicas").rowcount
            state.commit()
        mesh.start()
        wait_until(lambda: "RUNNING" in mesh.states(), _TIMEOUT_S, "another one")
        release.touch()
        assert "slowly" == answered.result(_TIMEOUT_S)
        assert "next" == handle.remote("next").result(timeout_s=_TIMEOUT_S)
