"""Requests that wait for WebSockets: the log says so."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.sync.client import connect

import pyserve
from tests.contract.fastapi.exchange import Asked, ask
from tests.mesh.asgi.crowds import Crowd
from tests.support.mesh import RunningMesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_websocket_with_the_last_place_is_told_and_a_higher_limit_helps(
    mesh: RunningMesh,
) -> None:
    def deploy(limit: int) -> None:
        limited = Crowd.options(max_ongoing_requests=limit)
        pyserve.run(limited.bind(), name="crowd", route_prefix="/crowd")

    deploy(1)
    try:
        with (
            ThreadPoolExecutor(1) as pool,
            connect(f"ws://{mesh.address}/crowd/talk", proxy=None),
        ):
            told = "WebSockets have every place of this replica (max_ongoing_requests=1)"
            wait_until(lambda: told in mesh.output())
            waiting = pool.submit(ask, mesh.address, Asked("GET", "/crowd/threads"))
            deploy(2)
            assert 40 == json.loads(waiting.result(timeout=30).body)
    finally:
        pyserve.delete("crowd")
