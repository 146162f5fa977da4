"""A small cluster for the launcher that needs one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ray_cluster import ray_cluster


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """Where a cluster of one node runs."""
    with ray_cluster() as cluster:
        yield cluster.address
