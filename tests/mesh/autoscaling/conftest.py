"""One mesh for all tests of this folder, and applications in it until a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

import pyserve


class Run(Protocol):
    """``pyserve.run`` without plain HTTP."""

    def __call__(self, app: pyserve.Application, **options: Any) -> pyserve.DeploymentHandle: ...


@pytest.fixture(scope="package")
def mesh() -> Iterator[None]:
    """Start the mesh."""
    pyserve.start(address="127.0.0.1:0")
    try:
        yield
    finally:
        pyserve.shutdown()


@pytest.fixture
def run(mesh: None) -> Iterator[Run]:
    """Run applications in the mesh until the test ends."""

    def run_it(app: pyserve.Application, **options: Any) -> pyserve.DeploymentHandle:
        return pyserve.run(app, **{"route_prefix": None, **options})

    yield run_it
    for name in pyserve.status().applications:
        pyserve.delete(name)
