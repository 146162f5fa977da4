"""A cluster for these tests, and a controller for each."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.mesh.launchers.world import Engine, World, standing
from tests.support.ray_cluster import ZONE, ray_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    if "TEST_RAY_CLUSTER" not in os.environ:
        pytest.skip("`make ray` runs it")
    with ray_cluster(
        {"num_cpus": 2, "labels": {ZONE: "a"}},
        {"num_cpus": 2, "resources": {"lens": 2}, "labels": {ZONE: "b"}},
    ) as found:
        import ray

        # For the questions of tests: the launcher asks from a process of its own.
        ray.init(address=found.address, log_to_driver=False, logging_level=logging.ERROR)
        yield found
        ray.shutdown()


@pytest.fixture
async def world(cluster: Any, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with standing(Engine("ray", options={"address": cluster.address})) as world:
        yield world
