"""Runs the command line as a user does, with bounds."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.client import ControlClient
from tests.support.waiting import wait_until
from tests.support.warm import Running, run_command, start_command

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 50.0


def pyserve(
    *arguments: str,
    environment: dict[str, str],
    timeout_s: float = _TIMEOUT_S,
    text: str = "",
    cwd: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return run_command(
        arguments, environment=environment, folder=cwd, timeout_s=timeout_s, text=text
    )


class Foreground:
    """A ``pyserve run`` in a process of its own."""

    def __init__(self, process: Running, log: Path) -> None:
        self.process = process
        self._log = log
        wait_until(
            lambda: process.poll() is not None or "is ready at " in self.output(), _TIMEOUT_S
        )
        assert process.poll() is None, self.output()

    def output(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> str:
        return self.output().partition("is ready at ")[2].split()[0]


@contextmanager
def foreground(
    environment: dict[str, str],
    target: str = "tests.mesh.apps.small:app",
    *arguments: str,
    address: str | None = "127.0.0.1:0",
    log_name: str = "run.log",
) -> Iterator[Foreground]:
    """Run a target until the end of the context; ``address``: None for one that attaches."""
    log = Path(environment["PYSERVE_HOME"]) / log_name
    with log.open("wb") as output:
        process = start_command(
            ["run", target, *arguments, *([] if address is None else ["--address", address])],
            environment=environment,
            folder=ROOT,
            stdout=output,
            stderr=output,
        )
    try:
        yield Foreground(process, log)
    except BaseException as error:
        error.add_note(log.read_text())
        raise
    finally:
        process.kill()
        process.wait()


def status_of(environment: dict[str, str]) -> dict[str, Any]:
    """Return what ``pyserve status --json`` prints."""
    result = pyserve("status", "--json", environment=environment)
    assert 0 == result.returncode, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def in_flight(environment: dict[str, str]) -> int:
    """Return how many calls the ingress holds, without a process that might start too late."""
    address = find_mesh(read_settings({"PYSERVE_HOME": environment["PYSERVE_HOME"]}))
    assert address is not None
    with closing(ControlClient(address)) as client:
        return client.status().ingress.in_flight
