"""The copy beside the state of a mesh: when it is made, and when a lost state is refused."""

from __future__ import annotations

import contextlib
import re
import shlex
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pyserve.control.store import Changes, Copies, SqliteStore
from pyserve.control.store.records import MeshFacts, Table
from pyserve.errors import MeshError

pytestmark = pytest.mark.parity("G-66")
FACTS = (Table.MESH, "facts")
COMMAND = re.compile(r"`([^`]*)`")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mesh.sqlite3"


def _written(path: Path, *, copied: bool = True) -> None:
    """Have a state that one controller has written and copied."""
    with contextlib.closing(SqliteStore(path)) as store:
        store.write(Changes({FACTS: MeshFacts(deploys=7)}))
        if copied:
            Copies(path, lambda: store.writes).copy()


def _read(path: Path) -> dict[object, object]:
    with contextlib.closing(SqliteStore(path)) as store:
        return dict(store.load())


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _without_records(path: Path) -> None:
    """Leave a schema without rows, as a loss of power does before the log is on the disk."""
    path.unlink()
    SqliteStore(path).close()


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("spoil", [_empty, Path.unlink, _without_records, _zeros])
def test_one_that_is_gone_is_no_new_mesh_and_its_copy_goes_on(
    path: Path, spoil: Callable[[Path], None]
) -> None:
    _written(path)
    spoil(path)

    for _ in range(2):
        with pytest.raises(MeshError, match="to go on with what was kept last") as refused:
            _read(path)

    (command,) = COMMAND.findall(str(refused.value))
    assert str(path) in shlex.split(command)
    subprocess.run(["/bin/sh", "-c", command], check=True, cwd=path.parent)
    assert {FACTS: MeshFacts(deploys=7)} == _read(path)


def test_who_moves_both_files_away_begins_anew(path: Path) -> None:
    _written(path)
    for file in path.parent.iterdir():
        file.unlink()

    assert {} == _read(path)


def test_a_state_that_never_was_written_is_that_of_a_new_mesh(path: Path) -> None:
    SqliteStore(path).close()
    _empty(path)

    assert {} == _read(path)


def test_a_copy_is_made_when_something_was_written_and_for_its_user_only(path: Path) -> None:
    copy = path.with_name("mesh.sqlite3.copy")
    with contextlib.closing(SqliteStore(path)) as store:
        copies = Copies(path, lambda: store.writes)
        copies.copy()
        assert not copy.exists()
        for deploys in (1, 2):
            store.write(Changes({FACTS: MeshFacts(deploys=deploys)}))
            copies.copy()
        assert 0o600 == stat.S_IMODE(copy.stat().st_mode)
        before = copy.stat().st_ino
        copies.copy()
        assert before == copy.stat().st_ino, "nothing has changed since"
    assert {FACTS: MeshFacts(deploys=2)} == _read(copy)
    assert {path.name, copy.name} == {file.name for file in path.parent.iterdir()}


def test_a_copy_that_cannot_be_made_leaves_the_former_one(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _written(path)
    copies = Copies(path, lambda: 1)
    path.unlink()

    for _ in range(2):
        copies.copy()

    assert ["the state of the mesh cannot be copied: unable to open database file"] == [
        each.getMessage() for each in caplog.records
    ]
    with contextlib.closing(sqlite3.connect(path.with_name("mesh.sqlite3.copy"))) as copy:
        assert [("facts",)] == copy.execute("SELECT key FROM mesh").fetchall()
    assert not path.exists()
