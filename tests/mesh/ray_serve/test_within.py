"""Deployments that deploy, ask and delete, as code for Ray Serve does."""

from __future__ import annotations

import pytest

import pyserve as serve
from tests.mesh.ray_serve.apps import Deployer, DeploysFirst
from tests.mesh.ray_serve.conftest import Run


@pytest.mark.parametrize("method", ["deploy", "deploy_beside"])
def test_an_application_is_deployed_from_within(run: Run, method: str) -> None:
    handle = run(Deployer.bind(), name="outer")
    deploy = getattr(handle, method)
    try:
        assert 42 == deploy.remote("inner", 2).result(timeout_s=60)
        assert 63 == deploy.remote("inner", 3).result(timeout_s=60), "another version"

        assert ["inner", "outer"] == handle.names.remote().result(timeout_s=30)
        assert 63 == serve.get_app_handle("inner").remote(21).result(timeout_s=30)
        handle.delete.remote("inner").result(timeout_s=30)
        assert ["outer"] == sorted(serve.status().applications)
    finally:
        serve.delete("inner")


@pytest.mark.slow
def test_what_is_deployed_from_within_outlives_the_replica(run_in_mesh: Run) -> None:
    handle = run_in_mesh(Deployer.bind(), name="outer")
    assert 42 == handle.deploy.remote("inner", 2).result(timeout_s=60)
    try:
        serve.delete("outer")

        assert 4 == serve.get_app_handle("inner").remote(2).result(timeout_s=30)
    finally:
        serve.delete("inner")


@pytest.mark.slow
def test_a_constructor_may_deploy_what_it_needs(run_in_mesh: Run) -> None:
    try:
        handle = run_in_mesh(DeploysFirst.bind("below"), name="above")
        assert 15 == handle.remote(3).result(timeout_s=30)
    finally:
        serve.delete("below")
