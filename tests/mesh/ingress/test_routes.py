"""Which application plain HTTP reaches, and what the ingress answers itself."""

from __future__ import annotations

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

import pyserve
from pyserve.errors import MeshError
from pyserve.gateway.descriptors import REFLECTION_V1, REFLECTION_V1ALPHA
from pyserve.wire.rayserve import api_pb2, api_pb2_grpc
from services.echo import echo_pb2
from tests.mesh.commands import pyserve as command
from tests.mesh.ingress import apps
from tests.support.mesh import RunningMesh

pytestmark = pytest.mark.slow
_TIMEOUT_S = 30.0
_SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parity("G-38")
def test_longest_prefix_wins_by_whole_segments(client: httpx.Client) -> None:
    below = client.get("/web/a%20b?x=1")

    assert (200, "/web/a b", "/web") == (
        below.status_code,
        below.json()["path"],
        below.json()["root_path"],
    )
    assert 1 <= client.post("/web/narrow/any", content="0").json()
    assert isinstance(client.post("/webbed", content="0").json(), float), "/ takes the rest"


@pytest.mark.parity("G-38")
def test_routes_and_health_are_answered_by_the_ingress(client: httpx.Client) -> None:
    routes = client.get("/-/routes")
    health = client.get("/-/healthz")

    assert {"/web": "web", "/web/narrow": "narrow", "/": "hasty"} == routes.json()
    assert (200, "success") == (health.status_code, health.text)
    assert 404 == client.get("/-/other").status_code


def test_servicer_without_plain_http_leaves_the_default_prefix_to_the_next(
    mesh: RunningMesh,
) -> None:
    applications = pyserve.status().applications

    assert {"web": "/web", "narrow": "/web/narrow", "hasty": "/", "echo": ""} == {
        name: each.route_prefix for name, each in applications.items()
    }


@pytest.mark.parity("G-38")
def test_prefix_that_is_taken_is_refused_and_both_are_named(mesh: RunningMesh) -> None:
    with pytest.raises(MeshError, match=r"'/web' of application 'other' .* application 'web'"):
        pyserve.run(apps.Hasty.bind(), name="other", route_prefix="/web")

    assert "other" not in pyserve.status().applications


@pytest.mark.parity("G-38")
def test_later_applications_go_without_the_default_prefix_or_without_any(
    client: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    routes = client.get("/-/routes").json()
    try:
        pyserve.run(apps.Hasty.bind(), name="later")
        told = capfd.readouterr().err
        pyserve.run(apps.Hasty.bind(), name="hidden", route_prefix=None)

        assert routes == client.get("/-/routes").json()
        assert "\npyserve: plain HTTP below / goes to hasty" in told
        assert "and none to later/Hasty; give route_prefix" in told
    finally:
        for name in ("later", "hidden"):
            if name in pyserve.status().applications:
                pyserve.delete(name)


@pytest.mark.parity("G-38")
def test_prefix_changes_with_a_deploy(client: httpx.Client) -> None:
    try:
        pyserve.run(apps.Hasty.bind(), name="moving", route_prefix="/before")
        assert 200 == client.get("/before").status_code
        pyserve.run(apps.Hasty.bind(), name="moving", route_prefix="/after")

        assert "/after" in client.get("/-/routes").json()
        assert "/before" not in client.get("/-/routes").json()
    finally:
        pyserve.delete("moving")


@pytest.mark.parity("G-44")
def test_health_and_reflection_follow_what_is_deployed(mesh: RunningMesh) -> None:
    with grpc.insecure_channel(mesh.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        listed = health.List(health_pb2.HealthListRequest(), timeout=_TIMEOUT_S).statuses
        assert {_SERVING} == {item.status for item in listed.values()}
        assert {
            *("", "services.echo.Echo", "grpc.health.v1.Health"),
            *(f"{name}.ServerReflection" for name in (REFLECTION_V1, REFLECTION_V1ALPHA)),
        } <= set(listed)
        reflected = ProtoReflectionDescriptorDatabase(channel)
        assert {"services.echo.Echo", "grpc.health.v1.Health"} <= set(reflected.get_services())
        file = reflected.FindFileContainingSymbol("services.echo.Echo")
        assert echo_pb2.DESCRIPTOR.name == file.name
        watch = health.Watch(
            health_pb2.HealthCheckRequest(service="late.Hasty"), timeout=_TIMEOUT_S
        )
        assert health_pb2.HealthCheckResponse.SERVICE_UNKNOWN == next(watch).status
        pyserve.run(apps.Hasty.bind(), name="late", route_prefix=None)
        assert _SERVING == next(watch).status
        pyserve.delete("late")
        seen = [next(watch).status]
        while seen[-1] == health_pb2.HealthCheckResponse.NOT_SERVING:
            seen.append(next(watch).status)
        assert health_pb2.HealthCheckResponse.SERVICE_UNKNOWN == seen[-1]
        watch.cancel()


@pytest.mark.parity("G-44")
def test_ray_serves_probes_are_answered(mesh: RunningMesh) -> None:
    with grpc.insecure_channel(mesh.address) as channel:
        api = api_pb2_grpc.RayServeAPIServiceStub(channel)
        healthz = api.Healthz(api_pb2.HealthzRequest(), timeout=_TIMEOUT_S)
        listed = api.ListApplications(api_pb2.ListApplicationsRequest(), timeout=_TIMEOUT_S)

    assert "success" == healthz.message
    assert ["echo", "hasty", "narrow", "web"] == list(listed.application_names)


def test_run_prints_where_plain_http_is(mesh: RunningMesh) -> None:
    assert f"pyserve: plain HTTP at http://{mesh.address}/web\n" in mesh.output()


def test_prefix_that_cannot_be_is_refused_by_the_command() -> None:
    refused = command(
        *("run", "tests.mesh.ingress.apps:web", "--route-prefix", "shop/"), environment={}
    )

    assert 0 != refused.returncode
    assert "--route-prefix='shop/' is not allowed" in refused.stderr


def test_services_of_the_ingress_speak_json_too(client: httpx.Client):
    answer = client.post("/grpc.health.v1.Health/Check", json={})

    assert (200, {"status": "SERVING"}) == (answer.status_code, answer.json())
    assert 404 == client.post("/grpc.health.v1.Health/Check", json={"service": "x"}).status_code
