"""The same application in a mesh of processes and in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import pyserve
from pyserve.testing import local
from tests.contract.handles.apps import app

Handles = Callable[[str], pyserve.DeploymentHandle]


@pytest.fixture(scope="package", params=[pytest.param("mesh", marks=pytest.mark.slow), "local"])
def mode(request) -> str:
    """Where applications run."""
    found: str = request.param
    return found


@pytest.fixture(scope="package")
def handles(mode) -> Iterator[Handles]:
    """Return a function that returns the handle of a deployment by its name."""
    name = f"contract-{mode}"

    def handle_of(deployment: str) -> pyserve.DeploymentHandle:
        return pyserve.DeploymentHandle(deployment, name)

    if mode == "local":
        with local(app, name=name):
            yield handle_of
    else:
        pyserve.start(address="127.0.0.1:0")
        try:
            pyserve.run(app, name=name)
            yield handle_of
        finally:
            pyserve.shutdown()


@pytest.fixture
def deploy(handles, mode) -> Iterator[Callable[[pyserve.Application], pyserve.DeploymentHandle]]:
    """Return a function that runs another application, beside the one of all tests."""
    name = f"beside-{mode}"
    yield lambda other: pyserve.run(
        other, name=name, route_prefix="/beside", local_testing_mode=mode == "local"
    )
    if name in pyserve.status().applications:
        pyserve.delete(name)


@pytest.fixture
def echo(handles: Handles) -> pyserve.DeploymentHandle:
    return handles("Echo")


@pytest.fixture
def front(handles: Handles) -> pyserve.DeploymentHandle:
    return handles("Front")
