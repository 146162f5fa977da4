"""A mesh of its own process and home, as ``pyserve run`` makes it."""

import os
import re
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.leftovers import SESSION_VARIABLE, processes_of, sockets_below
from tests.support.waiting import wait_until
from tests.support.warm import Running, start_command

_ROOT = Path(__file__).resolve().parents[2]
_READY = re.compile(r"is ready at (127\.0\.0\.1:\d+)")
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class RunningMesh:
    """A mesh in the foreground of another process.

    Attributes:
        address: Where the ingress listens, "host:port".
        home: Its ``PYSERVE_HOME``; drivers with another home do not attach to it.
        process: The ``pyserve run``.
        session: The value of ``SESSION_VARIABLE`` in all its processes.
    """

    address: str
    home: Path
    process: Running
    session: str
    log: Path

    def output(self) -> str:
        """Return what all its processes have written so far."""
        return self.log.read_text(errors="replace")


@contextmanager
def running_mesh(
    target: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    folder: Path = _ROOT,
) -> Iterator[RunningMesh]:
    """Run ``pyserve run target arguments`` on a free port until the block ends.

    Then it is interrupted, has to exit with 0, and no process and no socket may be left.

    Args:
        target: ``module:attribute``, importable from ``folder``.
        arguments: Further arguments of the command.
        environment: Further variables of all its processes.
        folder: Where the command runs; by default the root of the project.
    """
    # Short, because the path of a Unix socket has room for 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="pyserve-mesh-", dir="/tmp"))
    session = uuid.uuid4().hex
    log = home / "output.log"
    with log.open("wb") as output:
        process = start_command(
            ["run", target, *arguments, "--address", "127.0.0.1:0"],
            environment={
                **os.environ,
                **(environment or {}),
                "PYSERVE_HOME": str(home),
                SESSION_VARIABLE: session,
            },
            folder=folder,
            stdout=output,
            stderr=output,
            has_own_session=True,
            imports_from_folder=False,
        )
    try:
        address = _await_address(process, log)
        mesh = RunningMesh(address, home, process, session, log)
        yield mesh
        process.send_signal(signal.SIGINT)
        assert process.wait(_END_TIMEOUT_S) == 0
        wait_until(lambda: not processes_of(session), what="the mesh has left no process")
        assert [] == sockets_below(home)
    except BaseException as error:
        error.add_note(f"the mesh of {target} wrote:\n{log.read_text(errors='replace')[-10_000:]}")
        raise
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _await_address(process: Running, log: Path) -> str:
    wait_until(
        lambda: process.poll() is not None or _READY.search(log.read_text(errors="replace")),
        _START_TIMEOUT_S,
        "the mesh is ready",
    )
    found = _READY.search(log.read_text(errors="replace"))
    assert found, f"pyserve run ended with {process.poll()}"
    return found.group(1)
