"""How a keeper restores files that are gone, and what it logs."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import cast

import pytest

from pyserve.control.server.keeper import Keeper, TcpListener, UnixListener
from pyserve.errors import MeshError, MeshHeld

TCP = "127.0.0.1:7"


class Files:
    """A folder that can or cannot be recreated."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.error: Exception | None = None

    def restore(self) -> bool:
        if self.error is not None:
            raise self.error
        if self.run_dir.is_dir():
            return False
        self.run_dir.mkdir()
        return True


class Unix:
    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> None:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(self.path))


class Tcp:
    address = ""

    async def open(self) -> None:
        self.address = TCP


class Kept:
    def __init__(self, folder: Path) -> None:
        self.files = Files(folder / "run")
        self.unix = Unix(self.files.run_dir / "c.sock")
        self.tcp = Tcp()
        self.keeper = Keeper(
            self.files, cast("UnixListener", self.unix), cast("TcpListener", self.tcp)
        )


@pytest.fixture
async def kept(tmp_path: Path) -> Kept:
    made = Kept(tmp_path)
    made.files.restore()
    await made.unix.open()
    return made


async def test_what_is_there_is_left_alone(kept: Kept) -> None:
    assert f"unix:{kept.unix.path}" == await kept.keeper.controller()
    assert () == kept.keeper.notices()


async def test_what_was_removed_is_made_anew_and_said_each_time(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    for often in ("removed by", "removed 2 times by"):
        kept.unix.path.unlink()
        kept.files.run_dir.rmdir()
        assert f"unix:{kept.unix.path}" == await kept.keeper.controller()
        assert often in kept.keeper.notices()[0]
    assert 2 == len(caplog.records)
    assert "" == kept.tcp.address


async def test_where_it_cannot_be_replicas_get_the_tcp_port(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.unix.path.unlink()
    kept.files.run_dir.rmdir()
    kept.files.error = MeshError("the disk is full")
    for _ in range(2):
        assert TCP == await kept.keeper.controller()
    (notice,) = kept.keeper.notices()
    assert f"the disk is full. Replicas use {TCP} meanwhile" in notice
    assert [logging.ERROR] == [record.levelno for record in caplog.records]

    kept.files.error = None
    assert f"unix:{kept.unix.path}" == await kept.keeper.controller()
    assert "made anew" in kept.keeper.notices()[0]


async def test_a_home_that_another_mesh_has_taken_opens_no_port(kept: Kept) -> None:
    kept.files.error = MeshHeld("a mesh runs already in there")
    assert f"unix:{kept.unix.path}" == await kept.keeper.controller()
    assert "Replicas are not touched" in kept.keeper.notices()[0]
    assert "" == kept.tcp.address


async def test_a_folder_that_nobody_may_look_into_is_as_good_as_gone(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.files.error = PermissionError("the ticket has expired")

    def denied(_path: Path, **_options: object) -> None:
        raise PermissionError("the ticket has expired")

    # pytest looks at paths too, once the test is over.
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", denied)
        assert TCP == await kept.keeper.controller()
    assert "the ticket has expired" in kept.keeper.notices()[0]
