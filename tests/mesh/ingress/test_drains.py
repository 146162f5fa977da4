"""A mesh that ends tells balancers first, then takes nothing more, then waits for its calls."""

from __future__ import annotations

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.mesh.commands import foreground, in_flight, status_of
from tests.mesh.ingress.conftest import VARIABLES
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 20.0


@pytest.mark.parity("G-47")
def test_health_says_no_before_anything_is_refused(mesh_environment: dict[str, str]) -> None:
    environment = {**mesh_environment, "PYSERVE_INGRESS_DRAIN_S": "4"}
    with foreground(environment, "tests.mesh.ingress.apps:web") as running:
        base = f"http://{running.address}"

        def get(path: str, **params: float) -> httpx.Response:
            # A connection for each, as of a client that reconnects.
            return httpx.get(f"{base}{path}", params=params, timeout=_TIMEOUT_S)

        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(get, "/", wait_s=6)
            assert 200 == get("/-/healthz").status_code
            assert health_pb2.HealthCheckResponse.SERVING == _grpc_health(running.address)
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: 503 == get("/-/healthz").status_code)
            assert health_pb2.HealthCheckResponse.NOT_SERVING == _grpc_health(running.address)
            assert 200 == get("/").status_code, "the drain has only been announced"
            wait_until(lambda: _refuses(base), what="new connections are refused")
            assert 200 == slow.result(_TIMEOUT_S).status_code
        assert 0 == running.process.wait(_TIMEOUT_S)


@pytest.mark.parity("S-68")
def test_hard_stop_ends_what_the_deployment_would_let_run(
    mesh_environment: dict[str, str],
) -> None:
    environment = {**mesh_environment, "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "0.5"}
    with foreground(environment, "tests.mesh.ingress.apps:web") as running:
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(
                httpx.get, f"http://{running.address}/?wait_s=60", timeout=3 * _TIMEOUT_S
            )
            wait_until(lambda: in_flight(environment))
            running.process.send_signal(signal.SIGTERM)
            # Long before the 20 s that the deployment grants. The replica says 503, unless the
            # ingress ends before it could pass that on.
            with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
                assert 503 == slow.result(_TIMEOUT_S / 2).status_code
        assert 0 == running.process.wait(_TIMEOUT_S)


@pytest.mark.parity("S-62")
def test_direct_ports_serve_on_while_their_health_says_no(
    mesh_environment: dict[str, str],
) -> None:
    """As the ingress does, so that a balancer has time to look."""
    environment = {
        **mesh_environment,
        **VARIABLES,
        "PYSERVE_INGRESS_DRAIN_S": "3",
    }
    with foreground(environment, "tests.mesh.ingress.apps:web") as running:
        deployments = status_of(environment)["applications"]["default"]["deployments"]
        (replica,) = deployments["Web"]["replicas"]
        base = f"http://{replica['direct_http']}"

        def get(path: str, **params: float) -> httpx.Response:
            return httpx.get(f"{base}{path}", params=params, timeout=_TIMEOUT_S)

        with ThreadPoolExecutor(1) as threads:
            assert 200 == get("/-/healthz").status_code
            slow = threads.submit(get, "/", wait_s=5)
            os.kill(replica["pid"], signal.SIGTERM)
            wait_until(lambda: 503 == get("/-/healthz").status_code)
            assert 200 == get("/").status_code, "the drain has only been announced"
            wait_until(lambda: _refuses(base), what="new connections are refused")
            assert 200 == slow.result(_TIMEOUT_S).status_code
        running.process.send_signal(signal.SIGTERM)
        assert 0 == running.process.wait(_TIMEOUT_S)


def _grpc_health(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest()
        reply = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_TIMEOUT_S)
    status: int = reply.status
    return status


def _refuses(base: str) -> bool:
    try:
        httpx.get(f"{base}/-/healthz", timeout=_TIMEOUT_S)
    except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
        # Refused, or met the listener while it closed.
        return True
    return False
