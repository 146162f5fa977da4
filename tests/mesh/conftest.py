"""A home of its own for each test that starts a mesh, which must be left without a trace."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.leftovers import SESSION_VARIABLE, processes_of, sockets_below
from tests.support.waiting import wait_until

# A drain without calls in flight takes less than a second; the rest is for a busy machine.
_END_TIMEOUT_S = 30.0


@pytest.fixture
def mesh_environment() -> Iterator[dict[str, str]]:
    """Return the environment of a mesh; at the test's end no process and no socket is left."""
    # Short, because the path of a Unix socket has room for 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="pyserve-mesh-", dir="/tmp"))
    session = uuid.uuid4().hex
    try:
        yield {
            **os.environ,
            "PYSERVE_HOME": str(home),
            # Whoever says no address gets a free port: 8000 may be somebody else's.
            "PYSERVE_INGRESS_PORT": "0",
            SESSION_VARIABLE: session,
        }
        wait_until(
            lambda: not processes_of(session), _END_TIMEOUT_S, "the mesh has left no process"
        )
        assert [] == sockets_below(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
