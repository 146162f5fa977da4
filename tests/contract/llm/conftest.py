"""One mesh with simulated engines, and the clients that others have written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyserve
from tests.contract.llm import apps
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    """A mesh with an engine at ``/``, and the narrow one below ``/narrow``."""
    with running_mesh("tests.contract.llm.apps:simulated") as running, attached(running.home):
        pyserve.run(apps.narrow, name="narrow", route_prefix="/narrow")
        yield running


@pytest.fixture
def base_url(mesh: RunningMesh) -> str:
    """The URL of the ingress."""
    return f"http://{mesh.address}"
