"""One mesh for all tests of this folder; each deploys what it needs."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import pyserve


@pytest.fixture(scope="package")
def base_url() -> Iterator[str]:
    """Start the mesh; return the URL of its ingress."""
    pyserve.start(address="127.0.0.1:0")
    try:
        yield f"http://{pyserve.status().addresses[0]}"
    finally:
        pyserve.shutdown()


@pytest.fixture
def client(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=30) as client:
        yield client
