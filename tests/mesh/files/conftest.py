"""One mesh for all tests of this folder, with an application of each kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyserve
from tests.mesh.files import apps


@pytest.fixture(scope="package")
def base_url() -> Iterator[str]:
    """Start the mesh; return the URL of its ingress."""
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(apps.Web.bind(), name="web", route_prefix="/web")
        pyserve.run(apps.Plain.bind(), name="plain", route_prefix="/plain")
        yield f"http://{pyserve.status().addresses[0]}"
    finally:
        pyserve.shutdown()
