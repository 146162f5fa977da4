"""One class that is bound several times."""

from __future__ import annotations

import pytest

import pyserve
from tests.mesh.ray_serve.apps import Combine, Model
from tests.mesh.ray_serve.conftest import Run


@pytest.mark.parity("G-01")
def test_a_class_that_is_bound_twice_is_two_deployments(run: Run) -> None:
    handle = run(Combine.bind(Model.bind(2), Model.bind(3)))

    assert [20, 30] == handle.remote(10).result(timeout_s=30)
    deployments = pyserve.status().applications["default"].deployments
    assert {"Combine", "Model", "Model_1"} == set(deployments)
    second = pyserve.get_deployment_handle("Model_1", "default")
    assert 3 == second.remote(1).result(timeout_s=30)


def test_the_handle_of_run_is_that_of_the_outermost_one(run: Run) -> None:
    handle = run(Model.bind(2, Model.bind(3)))

    assert "Model_1" == handle.deployment_name
    assert 60 == handle.remote(10).result(timeout_s=30)
