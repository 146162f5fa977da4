"""One mesh for all tests: two engines and a page at ``/``, and an engine below ``/solo``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

import pyserve
from pyserve.api.handles.handle import DeploymentHandle
from tests.mesh.llm import apps
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached


@pytest.fixture(scope="package")
def mesh() -> Iterator[RunningMesh]:
    target = "tests.mesh.llm.apps:app"
    with running_mesh(target, "--access-log") as running, attached(running.home):
        solo = apps.Scripted.bind(apps.ledger, "solo")
        pyserve.run(solo, name="solo", route_prefix="/solo")
        yield running


@pytest.fixture
def base_url(mesh: RunningMesh) -> str:
    """The URL of the ingress."""
    return f"http://{mesh.address}"


@pytest.fixture
def client(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def ledger(mesh: RunningMesh) -> DeploymentHandle:
    """The handle of what the engines at ``/`` write to."""
    return pyserve.get_deployment_handle("Ledger", "default")


@pytest.fixture
def key() -> str:
    """The name of this test in the ledger."""
    return uuid.uuid4().hex
