"""A cluster for these tests, and a controller for each."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mesh.launchers.world import Engine, World
from tests.support.ray_cluster import ZONE, ray_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    if "TEST_RAY_CLUSTER" not in os.environ:
        pytest.skip("`make ray` runs it")
    with ray_cluster(
        {"num_cpus": 2, "labels": {ZONE: "a"}},
        {"num_cpus": 2, "resources": {"lens": 2}, "labels": {ZONE: "b"}},
    ) as found:
        yield found


@pytest.fixture
async def world(cluster: Any, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="pyserve-ray-", dir="/tmp"))
    engine = Engine("ray", options={"address": cluster.address})
    world = World(engine, folder)
    await world.begin()
    try:
        yield world
    except BaseException as error:
        error.add_note("\n".join(world.lines[-50:]))
        raise
    finally:
        await world.end()
        shutil.rmtree(folder, ignore_errors=True)
