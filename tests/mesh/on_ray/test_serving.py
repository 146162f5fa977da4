"""An application in the cluster, called as a client calls it."""

from __future__ import annotations

from typing import Any

import httpx
import psutil
import pytest

from tests.support.mesh import running_mesh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_calls_are_answered_from_actors_and_nothing_is_left(cluster: Any) -> None:
    options = ("--launcher", "ray", "--ray-address", cluster.address)
    with running_mesh("tests.mesh.launchers.apps:plain", *options) as mesh:
        answer = httpx.get(f"http://{mesh.address}/", timeout=30)

        assert 200 == answer.status_code, answer.text
        replica = psutil.Process(answer.json())
        parent = replica.parent()
        assert parent is not None
        assert "ReplicaActor" in " ".join(parent.cmdline())

    replica.wait(30)
    parent.wait(30)
