"""One mesh for all tests of this folder, and this process as one that has attached to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyserve
from pyserve.driver.session import Session
from tests.support.mesh import running_mesh
from tests.support.session import attached


@pytest.fixture(scope="package")
def session() -> Iterator[Session]:
    """Attach to a mesh that runs ``apps.py``."""
    with running_mesh("tests.mesh.handles.apps:app") as running, attached(running.home) as session:
        yield session


@pytest.fixture
def worker(session: Session) -> pyserve.DeploymentHandle:
    """Return a handle of the deployment that does what its caller says."""
    return pyserve.DeploymentHandle("Worker", "default")


@pytest.fixture
def chief(session: Session) -> pyserve.DeploymentHandle:
    """Return a handle of the deployment that calls the others."""
    return pyserve.DeploymentHandle("Chief", "default")


@pytest.fixture
def several(session: Session) -> pyserve.DeploymentHandle:
    """Return a handle of a deployment with three replicas."""
    return pyserve.DeploymentHandle("Several", "default")
