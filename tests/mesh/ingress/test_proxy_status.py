"""``pyserve status --proxy``: what the ingress did, as balancers show it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import pyserve
from tests.mesh.commands import pyserve as command
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parity("S-72")]
_TIMEOUT_S = 20.0


def shown(mesh: RunningMesh) -> dict[str, Any]:
    environment = {"PYSERVE_HOME": str(mesh.home)}
    done = command("status", "--proxy", "--json", environment=environment)
    assert 0 == done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_calls_are_counted_for_their_deployment_and_replica(
    mesh: RunningMesh, client: httpx.Client
) -> None:
    before = shown(mesh)
    for _ in range(3):
        assert 200 == client.get("/web").status_code
    after = shown(mesh)

    def counts(report: dict[str, Any]) -> dict[str, int]:
        found: dict[str, int] = report["deployments"]["web/Web"]["counts"]
        return found

    assert 3 == counts(after)["offered"] - counts(before)["offered"]
    assert 3 == counts(after)["completed"] - counts(before)["completed"]
    assert after["uptime_s"] > before["uptime_s"] > 0
    assert after["pid"] == pyserve.status().controller_pid
    assert 20_000 >= after["counts"]["connections_max"] >= after["counts"]["connections"]
    assert 2.0 == after["limits"]["connect_timeout_s"]
    (replica,) = after["deployments"]["web/Web"]["replicas"].values()
    assert ("RUNNING", 0) == (replica["state"], replica["in_flight"])


def test_calls_that_run_wait_and_are_refused_are_seen(
    mesh: RunningMesh, client: httpx.Client
) -> None:
    """Narrow has one place, and one waiting place."""

    def of_narrow() -> Any:
        return pyserve.status().ingress.deployments["narrow/Narrow"]

    refused = of_narrow().counts["refused_by_queue"]
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(client.post, "/web/narrow", content="9")]
        wait_until(lambda: 1 == of_narrow().in_flight, _TIMEOUT_S)
        calls.append(threads.submit(client.post, "/web/narrow"))
        wait_until(lambda: (1, 1) == (of_narrow().in_flight, of_narrow().parked), _TIMEOUT_S)
        assert 429 == client.post("/web/narrow").status_code
        report = shown(mesh)
        assert [200, 200] == [each.result(_TIMEOUT_S).status_code for each in calls]

    narrow = report["deployments"]["narrow/Narrow"]
    assert (1, 1) == (narrow["in_flight"], narrow["parked"])
    assert refused + 1 == narrow["counts"]["refused_by_queue"]
    assert [1] == [each["in_flight"] for each in narrow["replicas"].values()]


def test_people_get_a_table(mesh: RunningMesh) -> None:
    environment = {"PYSERVE_HOME": str(mesh.home)}
    lines = command("status", "--proxy", environment=environment).stdout.splitlines()

    assert lines[0].startswith("ingress of ")
    assert any(line.startswith("web/Web ") and " HEALTHY " in line for line in lines)
    assert any(line.startswith("  Web#") and " RUNNING " in line for line in lines)
