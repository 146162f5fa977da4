"""`pyserve viewing-key`: what looks, made of the token that is at hand."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyserve.admin.access import viewing_key
from pyserve.cli.commands import commands
from pyserve.control.discovery import MeshHome, MeshRecord
from pyserve.control.home import TOKEN_BYTES
from pyserve.errors import MeshError, MeshNotFound

TOKEN = b"\xab" * TOKEN_BYTES


def run(*arguments: str) -> str:
    done = CliRunner().invoke(commands, ["viewing-key", *arguments], catch_exceptions=False)
    assert 0 == done.exit_code
    return done.output


@pytest.fixture
def token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(TOKEN.hex())
    monkeypatch.setenv("PYSERVE_TOKEN_FILE", str(path))
    return path


def test_the_key_of_the_token_that_is_named_is_printed(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the controller is elsewhere: nobody is asked."""
    monkeypatch.setenv("PYSERVE_CONTROLLER", "192.0.2.1:7000")
    assert f"{viewing_key(TOKEN)}\n" == run()
    assert TOKEN.hex() == token_file.read_text()


@pytest.mark.usefixtures("token_file")
def test_a_file_has_the_key_alone_and_is_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("an older one, which was for everybody")
    path.chmod(0o644)
    for place in (path, tmp_path / "new"):
        assert "" == run("--output", str(place))
        assert viewing_key(TOKEN) == place.read_text().strip()
        assert 0o600 == stat.S_IMODE(place.stat().st_mode)


@pytest.mark.usefixtures("token_file")
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match=r"--output .*/nowhere/key cannot be written"):
        run("--output", str(tmp_path / "nowhere" / "key"))


def test_without_a_file_it_is_that_of_the_mesh_that_runs_here(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("h")
    monkeypatch.delenv("PYSERVE_TOKEN_FILE", raising=False)
    monkeypatch.setenv("PYSERVE_HOME", str(folder))
    with pytest.raises(MeshNotFound, match="set PYSERVE_TOKEN_FILE"):
        run()
    with MeshHome(folder) as home, socket_of(home.run_dir / "controller.sock") as listener:
        home.publish(
            MeshRecord(
                controller=f"unix:{listener.getsockname()}",
                controller_tcp="",
                token_file=str(home.token_file),
                pid=1,
                version="0.1.0",
            )
        )
        assert viewing_key(home.token) == run().strip()


def socket_of(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener
