"""One mesh for all tests of this folder, and this process as one that has attached to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    """Attach to a mesh that runs ``apps.py``."""
    with running_mesh("tests.mesh.stepping.apps:app") as running, attached(running.home):
        yield running
