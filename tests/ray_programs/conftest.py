"""One mesh for the programs of a module, and an application that ends with its test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import httpx
import pytest

import pyserve as serve


class Run(Protocol):
    """``serve.run``, with the address of the application beside its handle."""

    def __call__(
        self, app: serve.Application, name: str = "program"
    ) -> tuple[serve.DeploymentHandle[Any], str]: ...


@pytest.fixture(scope="module")
def mesh() -> Iterator[None]:
    serve.start(
        http_options=serve.HTTPOptions(port=0),
        grpc_options=serve.gRPCOptions(
            port=0,
            grpc_servicer_functions=[
                "tests.ray_programs.programs.fruit_pb2_grpc.add_FruitServiceServicer_to_server"
            ],
        ),
    )
    try:
        yield
    finally:
        serve.shutdown()


@pytest.fixture
def run(mesh: None) -> Iterator[Run]:
    names: set[str] = set()

    def run(
        app: serve.Application, name: str = "program"
    ) -> tuple[serve.DeploymentHandle[Any], str]:
        names.add(name)
        handle = serve.run(app, name=name, route_prefix=f"/{name}")
        return handle, f"http://{serve.status().addresses[0]}/{name}"

    yield run
    for name in names & serve.status().applications.keys():
        serve.delete(name)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20, follow_redirects=True) as client:
        yield client
