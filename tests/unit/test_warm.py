"""The commands that tests run are forks of one interpreter, and nobody can tell."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until
from tests.support.warm import Running, WarmProcess, run_command, start_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only"),
]

_TIMEOUT_S = 30.0
# Prints what it finds, and then waits for a signal.
_APPLICATION = """
import os, resource, sys
print(os.getcwd(), os.environ["PYSERVE_OF_TEST"], sys.path[0], sys.argv[1:], flush=True)
print(os.getsid(0) == os.getpid(), resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
import signal
print("waits", flush=True)
signal.pause()
"""


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYSERVE_OF_TEST": "1", **variables}


@contextmanager
def waiting(folder: Path, *, has_own_session: bool) -> Iterator[tuple[Running, list[str]]]:
    """Run a command that loads a module which waits; yield it with what it has printed."""
    (folder / "waits_of_test.py").write_text(_APPLICATION)
    with tempfile.TemporaryFile() as output:
        process = start_command(
            ["run", "waits_of_test:app"],
            environment=environment(),
            folder=folder,
            stdout=output,
            stderr=output,
            has_own_session=has_own_session,
        )

        def lines() -> list[str]:
            return os.pread(output.fileno(), 65536, 0).decode().splitlines()

        try:
            wait_until(lambda: "waits" in lines() or process.poll() is not None, _TIMEOUT_S)
            yield process, lines()
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("has_own_session", [True, False])
def test_a_command_finds_what_a_process_of_its_own_would(
    tmp_path: Path, has_own_session: bool
) -> None:
    with waiting(tmp_path, has_own_session=has_own_session) as (process, lines):
        assert isinstance(process, WarmProcess)
        arguments = ["run", "waits_of_test:app"]
        assert lines[0] == f"{tmp_path} 1 {tmp_path} {arguments}"
        assert lines[1] == f"{has_own_session} {resource.getrlimit(resource.RLIMIT_NOFILE)}"


def test_a_signal_reaches_it_and_its_status_is_kept(tmp_path: Path) -> None:
    with waiting(tmp_path, has_own_session=True) as (process, _):
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert -signal.SIGKILL == process.wait(_TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGKILL == process.poll() == process.returncode
        assert not psutil.pid_exists(process.pid)


def test_the_streams_and_the_status_are_the_commands(tmp_path: Path) -> None:
    done = run_command(
        ["status", "--no-such-option"],
        environment=environment(),
        folder=tmp_path,
        timeout_s=_TIMEOUT_S,
    )
    assert 2 == done.returncode
    assert "" == done.stdout
    assert "No such option '--no-such-option'" in done.stderr
    done = run_command(
        ["--version"], environment=environment(), folder=tmp_path, timeout_s=_TIMEOUT_S
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("pyserve ")


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waits_of_test.py").write_text("import signal\nsignal.pause()\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(
            ["run", "waits_of_test:app"],
            environment=environment(),
            folder=tmp_path,
            timeout_s=0.5,
        )


def test_settings_of_interpreters_get_one_of_their_own(tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as output:
        process = start_command(
            ["--version"],
            environment=environment(PYTHONDEVMODE="1"),
            folder=tmp_path,
            stdout=output,
            stderr=output,
        )
        assert isinstance(process, subprocess.Popen)
        assert 0 == process.wait(_TIMEOUT_S)
