"""uvicorn in a process of its own, as the mesh is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

_ROOT = Path(__file__).resolve().parents[3]
_READY = re.compile(r"running on http://(127\.0\.0\.1:\d+)")
_START_TIMEOUT_S = 30.0


@contextmanager
def uvicorn(target: str, root_path: str) -> Iterator[str]:
    """Serve ``module:app`` until the block ends; gives ``host:port``.

    Its WebSockets are wsproto's, as ours are.
    """
    command = [sys.executable, "-m", "uvicorn", target, "--port", "0", "--ws", "wsproto"]
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            [*command, "--root-path", root_path, "--no-access-log"],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        path = Path(log.name)
        try:
            wait_until(
                lambda: process.poll() is not None or _READY.search(path.read_text()),
                _START_TIMEOUT_S,
                "uvicorn is ready",
            )
            found = _READY.search(path.read_text())
            assert found, f"uvicorn ended: {path.read_text()}"
            yield found.group(1)
        finally:
            process.kill()  # Asked to end, it waits for WebSockets that it has denied.
            process.wait()
