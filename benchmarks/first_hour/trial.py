"""One run of a service: as a user starts it in a terminal, until its processes are gone."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.first_hour.systems import ANSWER, MODULE, RIGHT, System
from tests.support.terminal import Terminal, terminal

PATIENCE_S = 90.0
_LOOK_EVERY_S = 0.01
# A screen is read, which takes milliseconds.
_LOOK_AT_SCREEN_EVERY_S = 0.1
_ANSWER_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 20.0
# Wide enough that no line of anybody is broken.
_COLUMNS, _ROWS = 240, 60
_RUN = "FIRST_HOUR_RUN"


@dataclass(frozen=True)
class Answer:
    """What came back; status 0: nothing did."""

    status: int
    body: str


@dataclass
class Trial:
    """A service that runs, or has ended."""

    system: System
    port: int
    file: Path
    terminal: Terminal
    began: float

    @property
    def ended(self) -> bool:
        return self.terminal.process.poll() is not None

    def elapsed_s(self) -> float:
        """Return the seconds since the command was given."""
        return time.monotonic() - self.began

    def lines(self) -> list[str]:
        """Return what is to be seen in its terminal, without empty lines."""
        aside = self.system.after_shows
        rows = (row for row in self.terminal.rows() if row.strip())
        return [row for row in rows if not aside or aside not in row]

    def ask(self, body: object) -> Answer:
        """Call the service."""
        url = f"http://127.0.0.1:{self.port}{self.system.path}"
        return request(url, json.dumps(body).encode())

    def answers(self, label: object = ANSWER["label"]) -> bool:
        """Whether it gives the right answer, with a label."""
        answer = self.ask(RIGHT)
        return answer.status == 200 and json.loads(answer.body) == {**ANSWER, "label": label}

    def wait(self, happened: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Return whether it happened before the command ended, or the patience did."""
        deadline = time.monotonic() + patience_s
        while not self.ended and time.monotonic() < deadline:
            if happened():
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def pause(self, seconds: float) -> None:
        """Leave it alone for so long, or until it ends."""
        self.wait(lambda: False, seconds)

    def wait_until_calm(self, calm_s: float = 1.0, patience_s: float = 20.0) -> None:
        """Wait until its terminal has not changed for ``calm_s``."""
        deadline = time.monotonic() + patience_s
        shown, since = self.terminal.rows(), time.monotonic()
        while time.monotonic() < min(since + calm_s, deadline):
            time.sleep(_LOOK_AT_SCREEN_EVERY_S)
            if (now := self.terminal.rows()) != shown:
                shown, since = now, time.monotonic()


@contextmanager
def running(
    system: System,
    environment: Path,
    program: str,
    *,
    port: int,
    command: Sequence[str] = (),
) -> Iterator[Trial]:
    """Write a form of the service into a folder of its own and start it; it ends with the block.

    Args:
        system: Whose service it is.
        environment: Where that is installed.
        program: The form.
        port: Where it shall listen.
        command: In place of the one that the system's documentation has.
    """
    # Short: Unix sockets are made below it.
    with tempfile.TemporaryDirectory(prefix="fh-", ignore_cleanup_errors=True) as name:
        # Apart from what they write, which those that reload would watch.
        file = Path(name) / "service" / f"{MODULE}.py"
        file.parent.mkdir()
        file.write_text(system.at(port, program), encoding="utf-8")
        variables = _variables(system, environment, Path(name))
        words = [word.format(port=port) for word in command or system.start]
        # Looked up in its environment, not in ours.
        words[0] = str(environment / "bin" / words[0])
        began = time.monotonic()
        with terminal(
            *words, environment=variables, cwd=file.parent, columns=_COLUMNS, rows=_ROWS
        ) as opened:
            try:
                yield Trial(system, port, file, opened, began)
            finally:
                _stop(opened.process, variables[_RUN])


def free_port() -> int:
    """Return a port of loopback that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def request(url: str, body: bytes | None = None) -> Answer:
    """POST a body of JSON, or GET where there is none."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_ANSWER_TIMEOUT_S)
    method, headers = (
        ("GET", {}) if body is None else ("POST", {"content-type": "application/json"})
    )
    try:
        connection.request(method, parts.path or "/", body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException):
        return Answer(0, "")
    finally:
        connection.close()


def _variables(system: System, environment: Path, folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(environment),
        "LANG": "C.UTF-8",
        # Folders for the state of the systems, removed afterwards.
        "HOME": str(folder / "home"),
        "PYSERVE_HOME": str(folder / "mesh"),
        "RAY_TMPDIR": str(folder),
        # By which all processes of a run are found, wherever they have gone.
        _RUN: uuid.uuid4().hex,
        **system.variables,
    }


def _stop(process: subprocess.Popen[bytes], run: str) -> None:
    """Interrupt it as Ctrl-C does; what then still runs is killed."""
    family = _processes_of(run)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    psutil.wait_procs(family, timeout=_STOP_TIMEOUT_S)
    left = _processes_of(run)
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(left, timeout=_STOP_TIMEOUT_S)


def _processes_of(run: str) -> list[psutil.Process]:
    return [each for each in psutil.process_iter() if _environment(each).get(_RUN) == run]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except psutil.Error:  # It has ended, or is the kernel's or somebody else's.
        return {}
