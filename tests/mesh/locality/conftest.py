"""A mesh whose deployments have replicas on three nodes in two zones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pyserve.driver.session import Session
from tests.support.joining import all_run, joined_replica
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached

NODE_A = {"PYSERVE_NODE_ID": "node-a", "PYSERVE_ZONE": "zone-1"}
NODE_B = {"PYSERVE_NODE_ID": "node-b", "PYSERVE_ZONE": "zone-1"}
NODE_C = {"PYSERVE_NODE_ID": "node-c", "PYSERVE_ZONE": "zone-2"}


@contextmanager
def mesh_on_nodes(
    target: str, replicas: dict[str, list[dict[str, str]]], **environment: str
) -> Iterator[RunningMesh]:
    """Run a mesh on node A; replicas of its deployments join from elsewhere."""
    with ExitStack() as stack:
        mesh = stack.enter_context(running_mesh(target, environment={**NODE_A, **environment}))
        for deployment, places in replicas.items():
            for place in places:
                node, zone = place["PYSERVE_NODE_ID"], place["PYSERVE_ZONE"]
                stack.enter_context(joined_replica(mesh, deployment, node=node, zone=zone))
        with attached(mesh.home) as session:
            all_run(session, {name: len(places) + 1 for name, places in replicas.items()})
        yield mesh


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    """Run ``apps.py``: its own replicas on node A, others on B (same zone) and C (another)."""
    replicas = {"Placed": [NODE_B, NODE_C], "Predicting": [NODE_B], "Counting": [NODE_B]}
    with mesh_on_nodes("tests.mesh.locality.apps:app", replicas) as mesh:
        yield mesh


@pytest.fixture
def drive(mesh: RunningMesh, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Session]]:
    """Return what makes this process a driver with some environment."""
    with ExitStack() as stack:

        def attach(environment: dict[str, str]) -> Session:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            return stack.enter_context(attached(mesh.home))

        yield attach
