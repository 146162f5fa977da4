"""One mesh with several applications for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import pyserve
from tests.mesh.ingress import apps
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached

_TIMEOUT_S = 20.0
VARIABLES = {
    "PYSERVE_DIRECT_INGRESS": "1",
    "PYSERVE_DIRECT_INGRESS_MIN_HTTP_PORT": "31100",
    "PYSERVE_DIRECT_INGRESS_MAX_HTTP_PORT": "31999",
    "PYSERVE_DIRECT_INGRESS_MIN_GRPC_PORT": "41100",
    "PYSERVE_DIRECT_INGRESS_MAX_GRPC_PORT": "41999",
}


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    """Run the applications, and attach this process to their mesh."""
    with (
        running_mesh(
            "tests.mesh.ingress.apps:web",
            *("--name", "web", "--route-prefix", "/web"),
            environment=VARIABLES,
        ) as running,
        attached(running.home),
    ):
        pyserve.run(apps.Echo.bind(), name="echo")
        pyserve.run(apps.Narrow.bind(), name="narrow", route_prefix="/web/narrow")
        pyserve.run(apps.Hasty.bind(), name="hasty")
        yield running


@pytest.fixture
def client(mesh: RunningMesh) -> Iterator[httpx.Client]:
    """Open a client of the ingress."""
    with httpx.Client(base_url=f"http://{mesh.address}", timeout=_TIMEOUT_S) as opened:
        yield opened
