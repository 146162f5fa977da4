"""One mesh for the programs, and applications that end with their tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import httpx
import pytest

import pyserve as serve


class Run(Protocol):
    """``serve.run``, with the address of the application beside its handle."""

    def __call__(
        self, app: serve.Application, name: str = "llm"
    ) -> tuple[serve.DeploymentHandle[Any], str]: ...


@pytest.fixture(scope="package")
def mesh() -> Iterator[None]:
    serve.start(address="127.0.0.1:0")
    try:
        yield
    finally:
        serve.shutdown()


@pytest.fixture
def run(mesh: None) -> Iterator[Run]:
    names: set[str] = set()

    def run(app: serve.Application, name: str = "llm") -> tuple[serve.DeploymentHandle[Any], str]:
        names.add(name)
        handle = serve.run(app, name=name, route_prefix=f"/{name}")
        return handle, f"http://{serve.status().addresses[0]}/{name}"

    yield run
    for name in names & serve.status().applications.keys():
        serve.delete(name)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20) as client:
        yield client
