"""One mesh for all tests of this folder, and this process as one that has attached to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached


@pytest.fixture(scope="package", params=["app", "engine", "process"])
def mesh(request: pytest.FixtureRequest) -> Iterator[RunningMesh]:
    """Attach to a mesh that runs an application of ``apps.py``; by default each in turn."""
    target = f"tests.mesh.stepping.apps:{request.param}"
    with running_mesh(target) as running, attached(running.home):
        yield running
