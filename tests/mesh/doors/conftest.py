"""One mesh for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mesh import RunningMesh, running_mesh


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    """Run the mesh of ``apps.py``."""
    with running_mesh("tests.mesh.doors.apps:app") as running:
        yield running
