"""Ports of replicas for balancers outside of the mesh."""

from __future__ import annotations

import json

import grpc
import httpx
import pytest

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import pyserve as command
from tests.mesh.ingress import apps
from tests.mesh.ingress.conftest import VARIABLES
from tests.support.mesh import RunningMesh

pytestmark = [pytest.mark.slow, pytest.mark.parity("S-62")]
_TIMEOUT_S = 30.0


def ports(application: str, deployment: str, protocol: str) -> list[int]:
    """Return the direct ports of the replicas of one deployment."""
    replicas = pyserve.status().applications[application].deployments[deployment].replicas
    return [int(getattr(each, f"direct_{protocol}").rpartition(":")[2]) for each in replicas]


def test_every_replica_has_ports_of_its_own_within_the_ranges(mesh: RunningMesh) -> None:
    found = {
        protocol: ports("web", "Web", protocol) + ports("web", "Child", protocol)
        for protocol in ("http", "grpc")
    }

    for protocol, numbers in found.items():
        first, last = (
            int(VARIABLES[f"PYSERVE_DIRECT_INGRESS_{end}_{protocol.upper()}_PORT"])
            for end in ("MIN", "MAX")
        )
        assert 2 == len(set(numbers))
        assert all(first <= number <= last for number in numbers)


def test_balancer_reaches_a_replica_over_grpc_and_plain_http(mesh: RunningMesh) -> None:
    (grpc_port,) = ports("echo", "Echo", "grpc")
    (http_port,) = ports("hasty", "Hasty", "http")

    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        reply = stub.Echo(echo_pb2.EchoRequest(payload=b"direct"), timeout=_TIMEOUT_S)
    answer = httpx.post(f"http://127.0.0.1:{http_port}/", content="0", timeout=_TIMEOUT_S)

    assert b"direct" == reply.payload
    assert 200 == answer.status_code


def test_an_application_names_its_answers_and_explain_finds_the_calls(mesh: RunningMesh) -> None:
    """At the ingress and at a replica's port; pyserve's id is apart where they differ."""
    pyserve.run(apps.Correlated.bind(), name="correlated", route_prefix="/correlated")
    (port,) = ports("correlated", "Correlated", "http")
    try:
        for place, path in ((mesh.address, "/correlated"), (f"127.0.0.1:{port}", "/")):
            ours = f"call-at-{place}"
            for named, apart in ((ours, None), ("mine", ours)):
                answer = httpx.get(
                    f"http://{place}{path}",
                    params={"id": named},
                    headers={"x-request-id": ours, "x-pyserve-explain": "1"},
                    timeout=_TIMEOUT_S,
                )
                assert [named] == answer.headers.get_list("x-request-id")
                assert apart == answer.headers.get("x-pyserve-request-id")
        environment = {"PYSERVE_HOME": str(mesh.home)}
        found = command("explain", f"call-at-{mesh.address}", environment=environment)
        assert 0 == found.returncode, found.stderr
    finally:
        pyserve.delete("correlated")


def test_status_tells_a_balancer_the_ports(mesh: RunningMesh) -> None:
    environment = {"PYSERVE_HOME": str(mesh.home)}
    text = command("status", "--json", environment=environment).stdout

    (replica,) = json.loads(text)["applications"]["echo"]["deployments"]["Echo"]["replicas"]
    assert replica["direct_grpc"] == f"127.0.0.1:{ports('echo', 'Echo', 'grpc')[0]}"
    assert replica["direct_http"]


def test_port_that_was_left_rests(mesh: RunningMesh) -> None:
    pyserve.run(apps.Hasty.bind(), name="passing", route_prefix=None)
    (left,) = ports("passing", "Hasty", "grpc")
    pyserve.delete("passing")
    pyserve.run(apps.Hasty.bind(), name="passing", route_prefix=None)
    try:
        assert [left] != ports("passing", "Hasty", "grpc")
    finally:
        pyserve.delete("passing")
