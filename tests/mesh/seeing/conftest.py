"""A mesh of each test's own, whose metrics are at a free port."""

import pytest


@pytest.fixture
def environment(mesh_environment: dict[str, str]) -> dict[str, str]:
    return {**mesh_environment, "PYSERVE_METRICS_PORT": "0"}
