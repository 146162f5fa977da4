"""The files of a mesh: whose are removed, and what happens when somebody removes ours."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import grpc
import pytest

from pyserve.config import read_settings
from pyserve.control.discovery import MeshRecord, find_mesh
from pyserve.driver.client import ControlClient
from pyserve.driver.status import MeshStatus, read_status
from pyserve.types import MeshAddress
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import Foreground, foreground, pyserve, status_of
from tests.support.removing import remove_at_once
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_TIMEOUT_S = 60.0
_NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as a second user")


@pytest.fixture
def home(mesh_environment: dict[str, str]) -> Path:
    """Of the mesh; a folder of its own, since some tests remove it."""
    home = Path(mesh_environment["PYSERVE_HOME"]) / "h"
    mesh_environment["PYSERVE_HOME"] = str(home)
    return home


@pytest.fixture
def mesh(mesh_environment: dict[str, str], home: Path, tmp_path: Path) -> Iterator[Foreground]:
    with foreground(mesh_environment, log_name=str(tmp_path / "run.log")) as mesh:
        yield mesh


def record_in(home: Path) -> MeshRecord:
    return MeshRecord.from_json((home / "mesh.json").read_text())


def status_at(address: MeshAddress) -> MeshStatus:
    """Ask without a process of its own, whose start takes long on a busy machine."""
    with closing(ControlClient(address)) as client:
        return read_status(client.status())


def running(found: MeshStatus) -> list[int]:
    """Return the process ids of the replicas that serve."""
    replicas = found.applications["default"].deployments["Small"].replicas
    return [each.pid for each in replicas if each.state == "RUNNING"]


def replace_replica(mesh: Foreground, pid: int) -> None:
    """Kill the replica, and see a call answered by the next one."""
    os.kill(pid, signal.SIGKILL)
    with grpc.insecure_channel(mesh.address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)

        def answer() -> int:
            try:
                return int(stub.Perform(echo_pb2.PerformRequest(), timeout=_TIMEOUT_S).facts.pid)
            except grpc.RpcError:  # The call that the dead one had, at most.
                return pid

        wait_until(lambda: answer() != pid, _TIMEOUT_S, "another replica answers")


def says(mesh: Foreground, text: str) -> bool:
    return text in mesh.output()


def end(mesh: Foreground) -> None:
    mesh.process.send_signal(signal.SIGINT)
    assert 0 == mesh.process.wait(_TIMEOUT_S), mesh.output()


def test_a_mesh_leaves_what_its_user_has_in_its_home(
    mesh_environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    home.mkdir(mode=0o700)
    weights = [home / "mesh-models" / "weights.bin", home / "mesh-run" / "token"]
    for path in weights:
        path.parent.mkdir()
        path.write_text("mine")

    with foreground(mesh_environment, log_name=str(tmp_path / "run.log")) as mesh:
        end(mesh)

    assert ["mine", "mine"] == [path.read_text() for path in weights]
    assert {"mesh-models", "mesh-run", "mesh.lock"} == {each.name for each in home.iterdir()}


def test_a_replica_without_a_launcher_leaves_a_folder_that_is_not_of_its_mesh(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("mine")
    reader, writer = os.pipe()
    command = [
        *(sys.executable, "-m", "pyserve.replica", "--controller", "127.0.0.1:1"),
        *("--application", "a", "--deployment", "d", "--liveness-fd", str(reader)),
    ]
    environment = {**mesh_environment, "PYSERVE_RUN_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, pass_fds=(reader,)) as replica:
        os.close(reader)
        os.close(writer)  # Nobody has the other end: its launcher is gone.
        replica.wait(_TIMEOUT_S)

    assert "mine" == (tmp_path / "token").read_text()


@as_root
def test_a_link_that_another_user_made_at_the_default_home_is_refused(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    temporary = Path(mesh_environment["PYSERVE_HOME"]) / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    temporary.parent.chmod(0o711)
    victim = tmp_path / "mesh-mine"
    victim.mkdir(mode=0o700)
    (victim / "work").write_text("mine")
    link = temporary / f"pyserve-{os.getuid()}"
    identity = f"--reuid={_NOBODY} --regid={_NOBODY} --clear-groups".split()
    subprocess.run(["setpriv", *identity, "ln", "-s", str(tmp_path), str(link)], check=True)
    # Without a home of the user the default lies in the temporary folder.
    without = {"PYSERVE_HOME", "HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"}
    environment = {key: value for key, value in mesh_environment.items() if key not in without}

    for command in (["run", "tests.mesh.apps.small:app", "--address", "127.0.0.1:0"], ["status"]):
        ended = pyserve(*command, environment={**environment, "TMPDIR": str(temporary)})
        assert 0 != ended.returncode
        assert f"{link} is a symbolic link" in ended.stderr, ended.stderr
        assert "set PYSERVE_HOME to the directory that is meant" in ended.stderr
    assert ["mesh-mine"] == [each.name for each in tmp_path.iterdir()]
    assert "mine" == (victim / "work").read_text()


def test_a_mesh_whose_run_directory_is_removed_replaces_replicas_and_says_so(
    mesh: Foreground, mesh_environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    (pid,) = running(status_at(record_in(home).address()))
    remove_at_once(Path(record_in(home).token_file).parent)

    replace_replica(mesh, pid)

    found = status_of(mesh_environment)
    (notice,) = found["notices"]
    assert "have been removed by somebody else, and made anew" in notice
    assert notice in mesh.output()
    assert f"notice: {notice}" in pyserve("status", environment=mesh_environment).stdout
    replicas = found["applications"]["default"]["deployments"]["Small"]["replicas"]
    sockets = list(home.rglob("replica-*.sock"))
    assert len(replicas) == len(sockets) == 1, "the new one has a Unix socket again"
    log = str(tmp_path / "second.log")
    arguments = ("tests.mesh.apps.small:app", "--name", "b")
    with foreground(mesh_environment, *arguments, address=None, log_name=log) as second:
        assert "attached to the mesh of process" in second.output()
        end(second)
    ended = pyserve("shutdown", environment=mesh_environment)
    assert 0 == ended.returncode, ended.stderr
    assert 0 == mesh.process.wait(_TIMEOUT_S)
    assert ["mesh.lock"] == [each.name for each in home.iterdir()]


def test_a_mesh_whose_home_is_removed_is_found_again(
    mesh: Foreground, mesh_environment: dict[str, str], home: Path
) -> None:
    for count in range(1, 4):
        remove_at_once(home)
        times = "" if count == 1 else f" {count} times"
        said = f"have been removed{times} by somebody else"
        wait_until(partial(says, mesh, said), _TIMEOUT_S, said)
        assert is_found(home)
    (pid,) = running(status_at(record_in(home).address()))
    replace_replica(mesh, pid)
    end(mesh)
    assert ["mesh.lock"] == [each.name for each in home.iterdir()]


def test_a_mesh_whose_home_cannot_be_made_anew_goes_on_over_tcp(
    mesh: Foreground, mesh_environment: dict[str, str], home: Path
) -> None:
    token = record_in(home).address().token
    (pid,) = running(status_at(record_in(home).address()))
    put_in_the_way_of(home)

    replace_replica(mesh, pid)

    far = re.search(r"Replicas use (127\.0\.0\.1:\d+) meanwhile", mesh.output())
    assert far is not None, mesh.output()
    address = MeshAddress(controller=far[1], token=token)
    state, notice = sorted(status_at(address).notices, key=lambda each: "Replicas use" in each)
    assert "the state of the mesh cannot be" in state
    assert f"cannot be made anew: {home} cannot hold the files of a mesh: " in notice
    assert mesh.output().count(notice) == 1
    assert "this replica listens on TCP only" in mesh.output()

    home.unlink()
    wait_until(lambda: is_found(home), _TIMEOUT_S)
    assert running(status_at(address)) == running(status_at(record_in(home).address()))
    assert "and made anew" in json.dumps(status_of(mesh_environment)["notices"])
    end(mesh)


def put_in_the_way_of(home: Path) -> None:
    """Put a file in the place of the home, which may be recreated in between."""
    while not home.is_file():
        remove_at_once(home)
        with suppress(FileExistsError), home.open("x") as file:
            file.write("in the way")


def is_found(home: Path) -> bool:
    return find_mesh(read_settings({"PYSERVE_HOME": str(home)})) is not None
