"""One mesh for all tests of this folder, and the same code in local testing mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

import pyserve
from pyserve.driver.local import end_local


class Run(Protocol):
    """``pyserve.run`` in one of the two modes."""

    def __call__(
        self, app: pyserve.Application, *, name: str = "default", route_prefix: str | None = None
    ) -> pyserve.DeploymentHandle: ...


@pytest.fixture(scope="package")
def mesh() -> Iterator[None]:
    """Start the mesh."""
    pyserve.start(address="127.0.0.1:0")
    try:
        yield
    finally:
        pyserve.shutdown()


@pytest.fixture
def run_in_mesh(mesh: None) -> Iterator[Run]:
    """Run applications in the mesh until the test ends."""
    names: set[str] = set()

    def run(
        app: pyserve.Application, *, name: str = "default", route_prefix: str | None = None
    ) -> pyserve.DeploymentHandle:
        names.add(name)
        return pyserve.run(app, name=name, route_prefix=route_prefix)

    yield run
    for name in names & pyserve.status().applications.keys():
        pyserve.delete(name)


@pytest.fixture
def run_locally() -> Iterator[Run]:
    """Run applications in this process until the test ends."""

    def run(
        app: pyserve.Application, *, name: str = "default", route_prefix: str | None = None
    ) -> pyserve.DeploymentHandle:
        return pyserve.run(app, name=name, route_prefix=route_prefix, local_testing_mode=True)

    yield run
    end_local()


@pytest.fixture(params=[pytest.param("run_in_mesh", marks=pytest.mark.slow), "run_locally"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run applications in either mode."""
    chosen: Run = request.getfixturevalue(request.param)
    return chosen
