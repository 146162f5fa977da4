"""Which mesh applies, and that its files are private, locked and never stale."""

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pyserve.config import NodeSettings, read_settings
from pyserve.config.environment import MeshSettings
from pyserve.config.tls import TlsFiles
from pyserve.control.discovery import (
    MeshHome,
    MeshRecord,
    find_mesh,
    not_found,
    read_record,
    wait_while_held,
)
from pyserve.control.home import read_token
from pyserve.errors import MeshError, MeshHeld, MeshNotFound, OptionError
from pyserve.types import MeshAddress

FILES = TlsFiles(cert_file=Path("crt"), key_file=Path("key"), ca_file=Path("ca"))


@pytest.fixture
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("h")


@pytest.fixture
def running(directory):
    """A home in which something listens as a controller would."""
    with MeshHome(directory) as home, socket.socket(socket.AF_UNIX) as listener:
        path = home.run_dir / "controller.sock"
        listener.bind(str(path))
        listener.listen()
        home.publish(record(home, f"unix:{path}"))
        yield home


def record(home, controller):
    return MeshRecord(
        controller=controller,
        controller_tcp="127.0.0.1:5000",
        token_file=str(home.token_file),
        pid=1,
        version="0.1.0",
        addresses=("127.0.0.1:8000",),
    )


def settings(home, **changes):
    values = {"home": home, "controller": None, "token_file": None, "run_dir": None}
    return MeshSettings(node=NodeSettings(node_id="here"), **(values | changes))


def test_running_mesh_is_found_in_its_home(running):
    found = find_mesh(settings(running.home))

    assert found == MeshAddress(
        controller=f"unix:{running.run_dir / 'controller.sock'}", token=running.token
    )


def test_no_mesh_is_found_where_none_ran(tmp_path):
    assert find_mesh(settings(tmp_path / "nowhere")) is None


def test_record_of_a_mesh_that_listens_no_more_is_stale(directory):
    with MeshHome(directory) as home:
        home.publish(record(home, f"unix:{home.run_dir / 'gone.sock'}"))

        assert read_record(directory) is None
        assert find_mesh(settings(directory)) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"controller": 1}', "null", '"x"'])
def test_record_that_is_none_is_no_mesh(directory, text):
    (directory / "mesh.json").write_text(text)

    assert read_record(directory) is None


def test_named_controller_is_taken_with_the_token_file_beside_it(running, tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text("abcd" * 8 + "\n")
    token_file.chmod(0o600)

    found = find_mesh(settings(running.home, controller="localhost:1", token_file=token_file))

    assert MeshAddress(controller="localhost:1", token=b"\xab\xcd" * 8) == found


def test_named_controller_that_is_the_local_one_needs_no_token_file(running):
    found = find_mesh(settings(running.home, controller="127.0.0.1:5000"))

    assert MeshAddress(controller="127.0.0.1:5000", token=running.token) == found


def test_named_controller_without_its_token_says_what_to_set(running):
    with pytest.raises(MeshNotFound, match="PYSERVE_TOKEN_FILE"):
        find_mesh(settings(running.home, controller="localhost:1"))


@pytest.mark.parametrize("node", [{"plain_tcp": True}, {"tls": FILES}])
def test_a_controller_elsewhere_is_shown_the_token_by_tls_or_where_that_is_allowed(tmp_path, node):
    token_file = tmp_path / "token"
    token_file.write_text("abcd" * 8 + "\n")
    token_file.chmod(0o600)
    far = settings(tmp_path, controller="far:1", token_file=token_file)

    with pytest.raises(MeshError, match=r"--controller names far:1.*_MESH_TLS_.*_PLAIN_TCP=1"):
        find_mesh(replace(far, controller_is_of="--controller"))
    found = find_mesh(replace(far, node=NodeSettings(node_id="here", **node)))

    assert MeshAddress(controller="far:1", token=b"\xab\xcd" * 8) == found


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of root")
@pytest.mark.parametrize(("mode", "may_be"), [(0o440, True), (0o444, False), (0o460, False)])
def test_token_of_root_may_be_read_by_one_group_as_kubernetes_mounts_it(tmp_path, mode, may_be):
    path = tmp_path / "token"
    path.write_text("abcd" * 8 + "\n")
    path.chmod(mode)

    if may_be:
        assert b"\xab\xcd" * 8 == read_token(path)
    else:
        with pytest.raises(MeshError, match="others may read it"):
            read_token(path)


@pytest.mark.parametrize(
    ("text", "mode", "part"),
    [
        ("abcd", 0o644, "chmod 600"),
        ("", 0o600, "no mesh token"),
        ("not hex", 0o600, "something else than a mesh token"),
        (None, 0o600, "cannot be read from .*: No such file or directory; give the path"),
    ],
)
def test_token_that_cannot_be_trusted_is_refused(tmp_path, text, mode, part):
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)

    with pytest.raises(MeshError, match=part):
        read_token(path)
    with pytest.raises(MeshError, match=part) as raised:
        find_mesh(settings(tmp_path, controller="localhost:1", token_file=path))
    assert f"{path} (PYSERVE_TOKEN_FILE)" in str(raised.value)


def test_home_that_cannot_be_read_is_named_with_what_to_set(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    # As little to be read as one without permission, for root too.
    home = tmp_path / "loop" / "home"

    with pytest.raises(MeshError, match=r"loop/home cannot be read: .*; set PYSERVE_HOME to"):
        find_mesh(settings(home))


def test_record_that_cannot_be_read_is_named_with_what_to_set(directory):
    (directory / "mesh.json").symlink_to(directory / "elsewhere")

    with pytest.raises(MeshError, match=r"mesh.json cannot be read: .*; set PYSERVE_HOME to"):
        find_mesh(settings(directory))


def test_home_that_others_may_write_to_is_refused(directory):
    directory.chmod(0o777)

    with pytest.raises(MeshError, match="chmod 700"):
        MeshHome(directory)


@pytest.mark.parametrize("below", ["", "further"])
def test_home_that_cannot_be_made_is_named_with_what_to_set(directory, below):
    file = directory / "file"
    file.write_text("")

    with pytest.raises(MeshError, match=r"file.* cannot hold .*; set PYSERVE_HOME to a directory"):
        MeshHome(file / below)


@pytest.fixture
def full_disk():
    """Files of this process that take no byte, as on a full disk, but for the error's number."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))

    yield fill
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_home_on_a_full_disk_is_named_with_what_to_set(directory, full_disk):
    full_disk()

    with pytest.raises(MeshError, match=r"cannot hold the files of a mesh: File too large; set"):
        MeshHome(directory)


def test_disk_that_is_full_later_leaves_no_record(directory, full_disk):
    with MeshHome(directory) as home:
        full_disk()
        with pytest.raises(MeshError, match=r"cannot hold the files of a mesh: File too large"):
            home.publish(record(home, "unix:/x"))

    assert ["mesh.lock"] == [each.name for each in directory.iterdir()]


def test_home_whose_lock_cannot_be_written_is_named_with_what_to_set(directory):
    (directory / "mesh.lock").mkdir()

    with pytest.raises(MeshError, match=r"mesh.lock cannot be written in .*; set PYSERVE_HOME to"):
        MeshHome(directory)


def test_home_is_held_by_one_mesh_at_a_time(directory):
    with MeshHome(directory), pytest.raises(MeshError, match="holds"):
        MeshHome(directory)

    MeshHome(directory).close()


@pytest.mark.parametrize("text", [None, "", '{"controller": "unix:/gone"}'])
def test_mesh_that_holds_its_home_is_found_whatever_became_of_its_record(running, text):
    record = running.home / "mesh.json"
    record.unlink()
    if text is not None:
        record.write_text(text)

    found = find_mesh(settings(running.home))

    assert found is not None
    assert running.token == found.token
    with pytest.raises(MeshError, match=r"process 1\)"):
        MeshHome(running.home)


def test_mesh_whose_lock_was_removed_is_found_by_its_record(running):
    (running.home / "mesh.lock").unlink()

    assert find_mesh(settings(running.home)) is not None


def test_wait_for_a_home_ends_with_its_owner_or_in_time(directory):
    with MeshHome(directory):
        assert not wait_while_held(directory, deadline=time.monotonic())

    assert wait_while_held(directory, deadline=0.0)


def test_wait_for_a_home_ends_when_its_mesh_is_found(running):
    assert wait_while_held(running.home, deadline=0.0)


def test_home_that_is_held_in_silence_is_told_alike_by_everybody(directory):
    says = f"process {os.getpid()} holds {directory}/mesh.lock, but its mesh does not answer"
    with MeshHome(directory):
        assert find_mesh(settings(directory)) is None
        assert says in str(not_found(directory, "start one"))
        with pytest.raises(MeshError, match=says):
            MeshHome(directory)

    assert "no mesh runs here; start one" == str(not_found(directory, "start one"))


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["another", "none"])
def test_home_of_a_mesh_that_was_killed_is_nobodys(directory, pid):
    (directory / "mesh.lock").write_text(f'{{"pid": {pid}}}')

    assert "no mesh runs here; start one" == str(not_found(directory, "start one"))


MESH_THAT_IS_KILLED = """
import os, signal, sys
from pathlib import Path
from pyserve.control.discovery import MeshHome
home = MeshHome(Path(sys.argv[1]))
(home.run_dir / "controller.sock").touch()
(home.run_dir / "pyserve-values-x").mkdir()
(home.run_dir / "pyserve-values-x" / "socket").touch()
print(home.run_dir, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("below", ["", "x" * 100], ids=["home", "temporary folder"])
def test_home_removes_what_a_killed_mesh_left(directory, below):
    home = directory / below
    command = [sys.executable, "-c", MESH_THAT_IS_KILLED, str(home)]
    killed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert (left / "controller.sock").exists()

    with MeshHome(home):
        assert not left.exists()


def test_home_keeps_the_run_directory_of_a_mesh_that_runs_on(directory):
    """Somebody has removed the first one's lock, so a second one could start."""
    with MeshHome(directory) as first:
        (directory / "mesh.lock").unlink()
        with MeshHome(directory) as second:
            assert first.token_file.exists()
            assert first.run_dir != second.run_dir
            with pytest.raises(MeshHeld, match="holds"):
                first.restore()
        assert first.restore()
        assert not first.restore()


@pytest.mark.parametrize("gone", ["mesh.json", "mesh.lock", "run_dir", "token_file", "home"])
def test_home_restores_what_somebody_removed(running, gone):
    before = read_record(running.home)
    path = getattr(running, gone) if hasattr(running, gone) else running.home / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()

    assert running.restore()
    assert not running.restore()

    with contextlib.suppress(FileNotFoundError):
        (running.run_dir / "controller.sock").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(running.run_dir / "controller.sock"))
        listener.listen()
        assert before == read_record(running.home)
        assert running.token == read_token(running.token_file)
        with pytest.raises(MeshHeld):
            MeshHome(running.home)


def test_long_home_still_has_room_for_sockets(tmp_path):
    directory = tmp_path / ("x" * 100)

    with MeshHome(directory) as home, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home.run_dir / "replica-0123456789abcdef.sock"))
        run_dir = home.run_dir

    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("variables", "home"),
    [
        ({"PYSERVE_HOME": "/a", "XDG_RUNTIME_DIR": "/b"}, "/a"),
        ({"XDG_RUNTIME_DIR": "/b", "HOME": "/"}, "/b/pyserve"),
        ({"HOME": "/dev/null"}, f"{tempfile.gettempdir()}/pyserve-{os.getuid()}"),
        ({"HOME": "relative"}, f"{tempfile.gettempdir()}/pyserve-{os.getuid()}"),
        ({}, f"{tempfile.gettempdir()}/pyserve-{os.getuid()}"),
    ],
)
def test_home_comes_from_the_environment(variables, home):
    assert home == str(read_settings(variables).home)


def test_home_is_where_no_cleaner_of_temporary_folders_goes(tmp_path):
    """One for each machine, since homes of users may be shared by machines."""
    ours = f"pyserve/{socket.gethostname()}"
    home = {"HOME": str(tmp_path)}

    assert tmp_path / ".local" / "state" / ours == read_settings(home).home
    state = {**home, "XDG_STATE_HOME": str(tmp_path / "s")}
    assert tmp_path / "s" / ours == read_settings(state).home


@pytest.mark.parametrize("value", ["8000", "host", "host:99999", "unix:", "::1:80"])
def test_controller_that_is_no_address_is_refused(value):
    with pytest.raises(OptionError, match="PYSERVE_CONTROLLER"):
        read_settings({"PYSERVE_CONTROLLER": value})


def test_a_home_has_the_token_that_somebody_has_made_for_it(directory):
    with MeshHome(directory, lasting=True) as before:
        assert before.token
    with MeshHome(directory, lasting=True, token=b"given" * 4) as home:
        assert b"given" * 4 == home.token == read_token(home.token_file)


def test_a_lasting_home_has_the_same_token_and_places_after_a_controller_was_killed(directory):
    code = """
import os, sys
from pathlib import Path
from pyserve.control.discovery import MeshHome, MeshRecord
home = MeshHome(Path(sys.argv[1]), lasting=True)
(home.run_dir / "replica-1.sock").touch()
for name in ("controller.sock", "controller-1.sock", "builtin.sock"):
    (home.run_dir / name).touch()
print(home.token.hex(), home.run_dir, home.token_file, flush=True)
home.publish(MeshRecord(controller="unix:/nowhere", controller_tcp="10.0.0.7:4000",
                        token_file=str(home.token_file), pid=1, version="1"))
os.kill(os.getpid(), 9)
"""
    command = [sys.executable, "-c", code, str(directory)]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert -9 == killed.returncode, killed.stderr

    with MeshHome(directory, lasting=True) as home:
        same = [home.token.hex(), str(home.run_dir), str(home.token_file)]
        assert same == killed.stdout.split()
        assert home.former is not None
        assert "10.0.0.7:4000" == home.former.controller_tcp
        # The controller's own is replaced when the next one listens; until then clients wait.
        left = sorted(each.name for each in home.run_dir.glob("*.sock"))
        assert ["controller.sock", "replica-1.sock"] == left
        home.is_in_use = True
    assert (home.run_dir / "replica-1.sock").exists(), "whoever goes on needs it"

    with MeshHome(directory, lasting=True) as home:
        home.is_in_use = False
    assert not home.run_dir.exists()
    with MeshHome(directory, lasting=True) as last:
        assert home.token == last.token
        assert last.former is None


def test_a_lasting_home_and_another_one_do_not_use_each_others_places(directory):
    with MeshHome(directory, lasting=True) as home:
        token, run_dir = home.token, home.run_dir
    with MeshHome(directory) as other:
        assert run_dir != other.run_dir
        assert token != other.token
        assert run_dir.exists()


@pytest.mark.parametrize("size", [1, 8, 15])
def test_a_token_that_can_be_guessed_is_refused(directory, size):
    path = directory / "given"
    path.touch(0o600)
    path.write_text("ab" * size)
    with pytest.raises(MeshError, match=rf"given holds a mesh token of {size} bytes.*16 at least"):
        read_token(path)
    path.write_text("ab" * 16)
    assert bytes.fromhex("ab" * 16) == read_token(path)


@pytest.mark.parametrize("has_replicas", [True, False])
def test_a_token_that_was_removed_stays_as_long_as_replicas_know_it(directory, has_replicas):
    asked = []

    def look(run_dir):
        asked.append(run_dir)
        return has_replicas

    with MeshHome(directory, lasting=True) as home:
        token, run_dir = home.token, home.run_dir
        # As after a kill: replicas go on.
        home.is_in_use = True
    (directory / "token").unlink()
    with MeshHome(directory, lasting=True, has_replicas=look) as home:
        assert has_replicas is (token == home.token)
        assert home.token == read_token(home.token_file)
    assert [run_dir] == asked


def test_a_token_that_is_given_is_what_it_is(directory):
    with MeshHome(directory, lasting=True) as home:
        home.is_in_use = True
    with MeshHome(directory, lasting=True, token=b"t" * 16, has_replicas=lambda _: True) as home:
        assert b"t" * 16 == home.token
