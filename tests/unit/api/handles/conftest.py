"""Attaches the test's process to a mesh without a network."""

from collections.abc import Iterator

import pytest

import pyserve
from pyserve.api.context import attach
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from tests.unit.api.handles.fakes import FakeCaller, FakeMesh


@pytest.fixture
def mesh() -> Iterator[FakeMesh]:
    mesh = FakeMesh()
    attach(mesh)
    try:
        yield mesh
    finally:
        attach(None)
        mesh.close()


@pytest.fixture
def caller(mesh: FakeMesh) -> FakeCaller:
    return mesh.caller(DeploymentKey(ApplicationName("app"), DeploymentName("Model")))


@pytest.fixture
def handle(mesh: FakeMesh) -> pyserve.DeploymentHandle:
    return pyserve.DeploymentHandle("Model", "app")
