"""Private folders, and what of them is ever removed."""

import fcntl
import logging
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from pyserve import folders
from pyserve.errors import MeshError
from pyserve.folders import PrivateFolder, RunFolder, remove_left, remove_unused

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as a second user")


@pytest.fixture
def home(tmp_path_factory):
    folder = PrivateFolder(tmp_path_factory.mktemp("h") / "home", make=True)
    yield folder
    folder.close()


@pytest.fixture
def left(home):
    """The run folder of a mesh that was killed: nobody holds it any more."""
    run = RunFolder(home)
    (run.path / "controller.sock").touch()
    path = run.path
    run._let_go()
    return path


def by_nobody(*command: str) -> None:
    identity = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups".split()
    subprocess.run(["setpriv", *identity, *command], check=True)


def test_what_bears_no_mark_is_never_removed(home):
    models = home.path / "mesh-models"
    models.mkdir()
    (models / "token").write_text("of a tokenizer")

    remove_left(home)

    assert "of a tokenizer" == (models / "token").read_text()


@pytest.mark.parametrize("text", ["", "mine", "Made by pyserve for one mesh, and removed with it"])
def test_mark_of_somebody_else_is_none(home, text):
    folder = home.path / "mesh-x"
    folder.mkdir()
    (folder / ".pyserve").write_text(text)

    remove_left(home)

    assert text == (folder / ".pyserve").read_text()


def test_what_was_left_is_removed_through_no_link(home, left):
    (home.path / "mesh-link").symlink_to(left)
    shutil.move(left, left.with_name("other"))
    (home.path / "mesh-link2").symlink_to(left.with_name("other"))

    remove_left(home)

    assert (left.with_name("other") / "controller.sock").exists()


def test_what_is_not_ours_stays_with_its_folder_and_is_named(home, left, caplog):
    (left / "notes.txt").write_text("mine")
    (left / "pyserve-values-mine").mkdir()
    (left / "pyserve-values-mine" / "more").touch()
    (left / "token.d").mkdir()

    with caplog.at_level(logging.WARNING):
        remove_left(home)

    stays = {".pyserve", "notes.txt", "pyserve-values-mine", "token.d"}
    assert stays == {each.name for each in left.iterdir()}
    (line,) = caplog.messages
    assert f"{left} stays, because it holds what is not of pyserve: " in line
    assert "notes.txt" in line


def test_what_is_in_use_stays(home, left):
    with (left / ".pyserve").open("r+") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        remove_left(home)
        assert (left / "controller.sock").exists()

    remove_left(home)
    assert not left.exists()


def test_what_an_owner_lets_go_of_in_time_is_removed(home, left):
    with (left / ".pyserve").open("r+") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        owner = threading.Timer(0.05, mark.close)
        owner.start()
        remove_unused(left, patience_s=10.0)
        owner.join()

    assert not left.exists()


def test_run_folder_is_held_against_cleaners(home):
    """Those of systemd leave what is locked, others what has the sticky bit."""
    run = RunFolder(home)
    assert 0o1700 == stat.S_IMODE(run.path.stat().st_mode)
    descriptor = os.open(run.path, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
    run.close()
    assert not run.path.exists()


def test_no_more_of_the_temporary_folder_is_looked_at_than_a_start_can_wait_for(
    home, tmp_path, monkeypatch
):
    """Everybody may fill it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "_LOOKED_AT_MAX", 3)
    for number in range(10):
        run = tmp_path / f"pyserve-mesh-{number}"
        run.mkdir(mode=0o700)
        (run / ".pyserve").write_bytes(folders._MARK_TEXT)

    for left in (7, 4, 1, 0):
        remove_left(home)
        assert left == len(list(tmp_path.iterdir()))


def test_a_temporary_folder_that_cannot_be_listed_is_no_error(home, left, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    remove_left(home)

    assert not left.exists()


def test_folder_that_took_the_place_of_ours_is_left_alone(home):
    run = RunFolder(home)
    shutil.rmtree(run.path)
    run.path.mkdir()
    (run.path / "token").write_text("mine")

    run.close()

    assert "mine" == (run.path / "token").read_text()


def test_run_directory_that_a_variable_names_is_left_alone(tmp_path):
    (tmp_path / "token").write_text("mine")

    remove_unused(tmp_path)

    assert "mine" == (tmp_path / "token").read_text()


def test_link_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "there")

    with pytest.raises(MeshError, match=r"link is a symbolic link, .*; remove it, or set PYSERVE"):
        PrivateFolder(tmp_path / "link", make=True)


def test_links_on_the_way_are_followed_once(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")

    folder = PrivateFolder(tmp_path / "link" / "home", make=True)

    assert tmp_path / "there" / "home" == folder.path
    folder.close()


@pytest.mark.parametrize("depth", [1, 2])
def test_folder_that_everybody_may_replace_is_refused(tmp_path, depth):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    home = shared.joinpath(*["x"] * depth)

    with pytest.raises(MeshError, match=r"everybody may replace what is in .*shared.* chmod o-w"):
        PrivateFolder(home, make=True)

    shared.chmod(0o1777)
    PrivateFolder(home, make=True).close()


STATUS = """\
Name:\tpython
Uid:\t10001\t10001\t10001\t10001
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
"""


@pytest.mark.parametrize(
    ("status", "uid", "expected"),
    [
        (STATUS, 10001, True),
        (STATUS, 10002, False),
        (STATUS.replace("10001\n", "0\n"), 10001, False),
        (STATUS.replace("10001", "0"), 0, False),
        (STATUS.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"), 10001, False),
        (STATUS.replace("CapPrm:\t0000000000000000", "CapPrm:\t0000000000000080"), 10001, False),
        ("", 10001, False),
    ],
)
def test_container_whose_processes_stay_one_users_is_known(status, uid, expected):
    assert expected == folders.keeps_one_user(status, uid)


def test_folder_that_everybody_may_replace_is_taken_where_nobody_else_is(tmp_path, monkeypatch):
    """As volumes of pods are: Kubernetes makes an ``emptyDir`` with mode 0777."""
    status, volume = tmp_path / "status", tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o2777)
    monkeypatch.setattr(os, "getuid", lambda: 10001)
    monkeypatch.setattr(folders, "_FIRST_PROCESS", status)
    monkeypatch.setattr(folders, "_is_trusted", lambda _: True)
    monkeypatch.setattr(folders, "_open_own", lambda name, above, _: os.open(name, 0, dir_fd=above))

    status.write_text(STATUS)
    PrivateFolder(volume / "home", make=True).close()

    status.write_text(STATUS.replace("10001", "0"))
    with pytest.raises(MeshError, match="everybody may replace"):
        PrivateFolder(volume / "home", make=True)


@as_root
def test_folder_of_another_user_is_refused(tmp_path):
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", NOBODY, NOBODY)

    with pytest.raises(MeshError, match=rf"belongs to user {NOBODY}; set PYSERVE_HOME"):
        PrivateFolder(tmp_path / "home", make=True)


@as_root
@pytest.mark.parametrize("mode", [0o1777, 0o755, 0o700])
@pytest.mark.parametrize("depth", [1, 2])
def test_folder_below_one_of_another_user_is_refused(tmp_path, depth, mode):
    """Who owns a folder may rename and replace what is in it, whatever its mode."""
    other = tmp_path / "other"
    other.mkdir()
    os.chown(other, NOBODY, NOBODY)
    other.chmod(mode)

    says = rf"other belongs to user {NOBODY}, who may replace what is in it, .*; set PYSERVE_HOME"
    with pytest.raises(MeshError, match=says):
        PrivateFolder(other.joinpath(*["x"] * depth), make=True)


@as_root
@pytest.mark.parametrize("owner", [0, NOBODY])
def test_folder_below_those_of_root_and_of_this_user_is_taken(tmp_path, monkeypatch, owner):
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    above = tmp_path / "above"
    (above / "home").mkdir(parents=True, mode=0o700)
    os.chown(above, owner, owner)
    os.chown(above / "home", NOBODY, NOBODY)

    PrivateFolder(above / "home", make=True).close()


@pytest.mark.parametrize(
    ("uid_map", "expected"),
    [
        ("         0          0 4294967295\n", False),
        ("         0       1000          1\n         1     100000      65536\n", False),
        ("      1000       1000          1\n", True),
        ("         0       1000          1\n", True),
        ("         0       1000          1\n         1     100000      65533\n", True),
        ("", False),
    ],
)
def test_namespaces_that_show_one_number_for_strangers_are_known(uid_map, expected):
    """There root of the machine, who has ``/``, has the number of all who have none."""
    assert expected == folders.hides_owners(uid_map, 65534)


@as_root
def test_run_folder_of_another_user_is_never_removed(home, left):
    """Who may write to a home can put folders there that look like ours."""
    home.path.chmod(0o1777)
    os.chown(left, NOBODY, NOBODY)
    os.chown(left / ".pyserve", NOBODY, NOBODY)
    remove_left(home)
    assert (left / "controller.sock").exists()

    os.chown(left, 0, 0)
    remove_left(home)
    assert (left / "controller.sock").exists()


@as_root
def test_file_that_another_user_put_there_is_not_read(home):
    home.path.chmod(0o1777)
    for above in Path(home.path).parents:
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    by_nobody("sh", "-c", f"echo '{{}}' > {home.path}/mesh.json")

    with pytest.raises(ValueError, match="belongs to another user"):
        home.read("mesh.json")
