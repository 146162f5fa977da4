"""One mesh for all tests of the forms of messages."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.mesh import running_mesh


@pytest.fixture(scope="package")
def forms() -> Iterator[httpx.Client]:
    """Run ``Forms`` of ``apps.py``; give a client of its ingress."""
    with (
        running_mesh("tests.mesh.json.apps:forms") as mesh,
        httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client,
    ):
        yield client


@pytest.fixture(scope="package")
def editions() -> Iterator[httpx.Client]:
    """As ``forms``, of ``Editions``."""
    with (
        running_mesh("tests.mesh.json.apps:editions") as mesh,
        httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client,
    ):
        yield client


@pytest.fixture(scope="package")
def old() -> Iterator[httpx.Client]:
    """As ``forms``, of ``Old``."""
    with (
        running_mesh("tests.mesh.json.apps:old") as mesh,
        httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client,
    ):
        yield client
