"""One mesh for all tests of this folder, with an application at each of several prefixes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

import pyserve
from pyserve.api.handles.handle import DeploymentHandle
from tests.mesh.plain_http import apps


@pytest.fixture(scope="package")
def base_url() -> Iterator[str]:
    """Start the mesh; return the URL of its ingress."""
    pyserve.start(address="127.0.0.1:0")
    try:
        web = apps.Web.bind(apps.Ledger.bind())
        pyserve.run(web, name="web", route_prefix="/")
        pyserve.run(apps.multiply.bind(), name="multiply", route_prefix="/multiply")
        pyserve.run(apps.Count.bind(), name="count", route_prefix="/multiply/count")
        pyserve.run(apps.Batches.bind(), name="batches", route_prefix="/batches")
        pyserve.run(apps.Models.bind(), name="models", route_prefix="/models")
        yield f"http://{pyserve.status().addresses[0]}"
    finally:
        pyserve.shutdown()


@pytest.fixture
def client(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=30) as client:
        yield client


@pytest.fixture
def ledger(base_url: str) -> DeploymentHandle:
    """The handle of what writes down what happened."""
    return pyserve.get_deployment_handle("Ledger", "web")


@pytest.fixture
def key() -> str:
    """The name of this test in the ledger."""
    return uuid.uuid4().hex
