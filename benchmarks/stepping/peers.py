"""Other systems with continuous batching, installed from the package index."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.first_hour.environments import install
from benchmarks.first_hour.systems import SYSTEMS
from benchmarks.first_hour.trial import free_port
from benchmarks.guarded import guarded
from benchmarks.machine import ROOT

_READY_TIMEOUT_S = 90.0
_LOOK_EVERY_S = 0.05
_PROGRAM = Path(__file__).with_name("litserve_peer.py")


@contextmanager
def litserve(environment: Path) -> Iterator[str]:
    """Serve the model with LitServe until the block ends.

    Args:
        environment: A folder for its packages; installed if it is not there.

    Yields:
        Where it listens, host:port.

    Raises:
        InstallError: It cannot be installed.
        RuntimeError: It does not start.
    """
    if not environment.exists():
        (system,) = (each for each in SYSTEMS if each.name == "litserve")
        install(environment, system.requirement)
    port = free_port()
    command = [str(environment / "bin" / "python"), str(_PROGRAM), "--port", str(port)]
    with guarded(command, {**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        _await_port(process, port)
        yield f"127.0.0.1:{port}"


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"LitServe ended with {process.returncode}")
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_LOOK_EVERY_S)
    raise RuntimeError(f"LitServe does not listen within {_READY_TIMEOUT_S:g} s")
