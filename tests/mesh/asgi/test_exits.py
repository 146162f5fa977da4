"""A request that leaves the process by an exit fails, and no other one does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import pyserve
from tests.contract.fastapi.exchange import Asked, ask
from tests.mesh.asgi.crowds import Crowd
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_an_exit_in_a_task_of_a_request_ends_no_other_request(mesh: RunningMesh) -> None:
    pyserve.run(Crowd.bind(), name="crowd", route_prefix="/crowd")
    try:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(ask, mesh.address, Asked("GET", "/crowd/meet/2"))
            wait_until(lambda: 1 == pyserve.status().ingress.in_flight)
            assert 500 == ask(mesh.address, Asked("GET", "/crowd/leave")).status
            met = ask(mesh.address, Asked("GET", "/crowd/meet/2"))
            assert json.loads(met.body) == json.loads(waiting.result(timeout=30).body)
        assert "a task raised SystemExit; the replica goes on" in mesh.output()
    finally:
        pyserve.delete("crowd")
