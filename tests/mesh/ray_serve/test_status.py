"""What ``status`` tells, in the words of Ray Serve."""

from __future__ import annotations

import time

import pytest

import pyserve as serve
from pyserve.schema import (
    ApplicationStatus,
    DeploymentStatus,
    DeploymentStatusTrigger,
    ReplicaState,
)
from tests.mesh.ray_serve.apps import Broken, Model
from tests.mesh.ray_serve.conftest import Run


@pytest.mark.parity("G-63")
def test_an_application_that_runs_says_so(run: Run) -> None:
    begun_at = time.time()
    run(Model.bind(2), name="a")

    application = serve.status().applications["a"]
    assert "RUNNING" == application.status
    assert ApplicationStatus.RUNNING == application.status
    assert "" == application.message
    assert begun_at <= application.last_deployed_time_s <= time.time()
    deployment = application.deployments["Model"]
    assert "HEALTHY" == deployment.status
    assert DeploymentStatus.HEALTHY == deployment.status
    assert {"RUNNING": 1} == deployment.replica_states
    assert DeploymentStatusTrigger.CONFIG_UPDATE_COMPLETED == deployment.status_trigger
    assert 1 == deployment.replica_states[ReplicaState.RUNNING]
    assert "RUNNING" == str(application.status) == f"{application.status}"


@pytest.mark.slow
@pytest.mark.parity("G-63")
def test_a_deploy_that_fails_is_told_with_its_reason(run_in_mesh: Run) -> None:
    with pytest.raises(RuntimeError, match="no weights"):
        run_in_mesh(Broken.bind(), name="a")

    application = serve.status().applications["a"]
    assert ApplicationStatus.DEPLOY_FAILED == application.status
    assert "no weights" in application.message
    assert "DEPLOY_FAILED" == application.deployments["Broken"].status
    assert "no weights" in application.deployments["Broken"].message


@pytest.mark.slow
def test_the_ingress_is_the_proxy_of_its_node(run_in_mesh: Run) -> None:
    run_in_mesh(Model.bind(2))
    found = serve.status()
    [(node, state)] = found.proxies.items()
    [replica] = found.applications["default"].deployments["Model"].replicas
    assert (replica.node, "HEALTHY") == (node, state)


def test_the_handle_of_an_application_is_found_by_its_name(run: Run) -> None:
    run(Model.bind(2), name="a")
    assert 4 == serve.get_app_handle("a").remote(2).result(timeout_s=30)
