"""Who comes between a controller that was killed and the next one waits, and nobody else does."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from pyserve.control.discovery import MeshHome, MeshRecord
from pyserve.control.returning import is_silent, wait_for_listener, wait_for_next
from pyserve.errors import MeshHeld
from pyserve.types import MeshAddress

pytestmark = pytest.mark.parity("G-66")
# Nobody waits as long: a test fails by its own time limit before.
FOR_EVER_S = 1e6


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h")


def publish(home: MeshHome) -> Path:
    """Say that a controller listens; return where it does not yet."""
    path = home.run_dir / "controller.sock"
    home.publish(
        MeshRecord(
            controller=f"unix:{path}",
            controller_tcp="",
            token_file=str(home.token_file),
            pid=1,
            version="0.1.0",
        )
    )
    return path


def kill(home: MeshHome) -> None:
    """Leave what a killed process leaves: its files, without its lock."""
    home.is_in_use = True
    home.close()


@pytest.fixture
def killed(directory: Path) -> Path:
    """Where the controller of a mesh that stays has been killed would listen."""
    home = MeshHome(directory, lasting=True)
    path = publish(home)
    kill(home)
    return path


def test_the_next_controller_is_waited_for(directory: Path, killed: Path) -> None:
    found: list[bool] = []
    waiting = threading.Thread(
        target=lambda: found.append(wait_for_next(directory, FOR_EVER_S)), daemon=True
    )
    waiting.start()
    assert [] == found
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(killed))
        listener.listen()
        waiting.join(20)
    assert [True] == found


def test_one_that_never_comes_is_waited_for_as_long_as_may_be(
    directory: Path, killed: Path
) -> None:
    assert not killed.exists()
    assert not wait_for_next(directory, 0.1)


def test_nobody_waits_where_none_was_killed(directory: Path) -> None:
    assert not wait_for_next(directory, FOR_EVER_S)
    with MeshHome(directory, lasting=True) as home:
        publish(home)
        home.is_in_use = False

    assert not wait_for_next(directory, FOR_EVER_S), "it has ended in order"


def test_nobody_waits_for_the_mesh_of_a_driver(directory: Path) -> None:
    home = MeshHome(directory)
    publish(home)
    kill(home)

    assert not wait_for_next(directory, FOR_EVER_S)


def test_the_mesh_of_a_program_is_waited_for_while_it_is_kept(directory: Path) -> None:
    home = MeshHome(directory)
    publish(home)

    assert not wait_for_next(directory, 0.1), "none has come"
    waited = threading.Thread(target=wait_for_next, args=(directory, FOR_EVER_S), daemon=True)
    waited.start()
    waited.join(0.2)
    assert waited.is_alive(), "the keeper has the home"
    kill(home)
    waited.join()


def test_a_home_is_handed_on_with_its_files(directory: Path) -> None:
    home = MeshHome(directory)
    path = publish(home)
    path.touch()
    lease = home.lease().copy()
    home.let_go()

    with pytest.raises(MeshHeld):
        MeshHome(directory)
    heir = MeshHome(directory, lease=lease)
    assert (home.run_dir, home.token) == (heir.run_dir, heir.token)
    assert heir.former is not None
    heir.is_in_use = False
    heir.close()

    assert ["mesh.lock"] == [each.name for each in directory.iterdir()]
    MeshHome(directory).close()


def test_a_client_waits_for_the_next_controller_at_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    mesh = MeshAddress(controller=f"unix:{path}", token=b"")
    assert not is_silent(mesh), "none was there, or the last one has ended in order"

    with closing(socket.socket(socket.AF_UNIX)) as former:
        former.bind(str(path))
        former.listen()
        assert not is_silent(mesh)
    assert is_silent(mesh)
    assert not wait_for_listener(mesh, 0.1)

    fresh = tmp_path / "fresh.sock"
    with closing(socket.socket(socket.AF_UNIX)) as successor:
        successor.bind(str(fresh))
        successor.listen()
        waiting = threading.Thread(target=wait_for_listener, args=(mesh, FOR_EVER_S), daemon=True)
        waiting.start()
        fresh.rename(path)
        waiting.join()
    path.unlink()
    assert not is_silent(mesh)
