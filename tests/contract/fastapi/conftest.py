"""Both servers, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.fastapi.servers import uvicorn
from tests.support.mesh import RunningMesh, running_mesh

PREFIX = "/shapes"


@pytest.fixture(scope="package")
def reference() -> Iterator[str]:
    """Return the address of uvicorn, which adds the prefix itself."""
    with uvicorn("tests.contract.fastapi.application:app", PREFIX) as address:
        yield address


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    """Return a mesh that serves the same application below the prefix."""
    target = "tests.contract.fastapi.application:deployed"
    with running_mesh(target, "--route-prefix", PREFIX) as running:
        yield running
