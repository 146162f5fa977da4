"""One mesh for all tests of this folder, and this process as a driver that has attached to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyserve.api.context import attach
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.session import Session
from tests.support.mesh import RunningMesh, running_mesh


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    """Attach to a mesh that serves ``apps.py`` at ``/``."""
    with running_mesh("tests.mesh.asgi.apps:app") as running:
        address = find_mesh(read_settings({"PYSERVE_HOME": str(running.home)}))
        assert address is not None
        session = Session(address, None)
        attach(session)
        try:
            yield running
        finally:
            attach(None)
            session.close()
