"""The file is replaced in one step, and HAProxy is told; what goes wrong is said."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyserve.errors import MeshError
from pyserve.gateway.haproxy.follower import MasterSignal, MasterSocket, replace_file

_TIMEOUT_S = 30.0
_PROCESSES = "#<PID> <type> <reloads>\n12  master  3 [failed: {}]   0d00h00m07s 2.6.12\n# workers\n"


@contextmanager
def master(path: Path, answers: Sequence[str]) -> Iterator[list[str]]:
    """Answer one connection after the other; yield the commands that came."""
    commands: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(_TIMEOUT_S)

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    commands.append(connection.recv(100).decode().strip())
                    connection.sendall(answer.encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield commands
        finally:
            thread.join(_TIMEOUT_S)


def test_a_master_that_says_so_has_reloaded(tmp_path: Path) -> None:
    with master(tmp_path / "m", ["Success=1\n--\n"]) as commands:
        MasterSocket(tmp_path / "m")()
    assert ["reload"] == commands


def test_an_older_master_is_asked_what_came_of_it(tmp_path: Path) -> None:
    with master(tmp_path / "m", ["", _PROCESSES.format(0)]) as commands:
        MasterSocket(tmp_path / "m")()
    assert ["reload", "show proc"] == commands


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["Success=0\n--\n[ALERT] line 7\n"], "FILE`: \\[ALERT\\] line 7"),
        (["", _PROCESSES.format(1)], "goes on with the one before"),
    ],
)
def test_a_configuration_that_is_refused_is_an_error(
    answers: Sequence[str], told: str, tmp_path: Path
) -> None:
    with master(tmp_path / "m", answers), pytest.raises(MeshError, match=told):
        MasterSocket(tmp_path / "m")()


def test_a_master_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match=r"cannot be reached at .*/m: .*; start it with"):
        MasterSocket(tmp_path / "m")()


def test_a_master_may_be_told_by_a_signal(tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})\n"
        "print('ready', flush=True)\n"
        "sys.exit(signal.sigwait({signal.SIGUSR2}) - signal.SIGUSR2)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"ready\n" == process.stdout.readline()
        (tmp_path / "pid").write_text(f"{process.pid}\n")
        MasterSignal(tmp_path / "pid")()
        assert 0 == process.wait(_TIMEOUT_S)


@pytest.mark.parametrize("content", [None, "", "0", "-1", "nobody"])
def test_a_pid_file_without_a_process_is_an_error(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "pid").write_text(content)
    with pytest.raises(MeshError, match=r"cannot be told by .*/pid: "):
        MasterSignal(tmp_path / "pid")()


def test_a_file_is_replaced_once_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "haproxy.cfg"
    assert replace_file(path, "a")
    assert 0o644 == path.stat().st_mode & 0o777
    path.chmod(0o640)
    before = path.stat().st_ino
    assert not replace_file(path, "a")
    assert before == path.stat().st_ino
    assert replace_file(path, "b")
    assert ("b", 0o640) == (path.read_text(), path.stat().st_mode & 0o777)
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "broken", [lambda path: path.mkdir(), lambda path: path.parent.rmdir()], ids=["is", "none"]
)
def test_a_file_that_cannot_be_written_leaves_what_was_there(
    broken: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    broken(folder / "haproxy.cfg")
    before = list(os.walk(tmp_path))
    with pytest.raises(MeshError, match=r"haproxy.cfg cannot be written: "):
        replace_file(folder / "haproxy.cfg", "a")
    assert before == list(os.walk(tmp_path))
