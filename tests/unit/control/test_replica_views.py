"""Which routers are told what replicas say of themselves."""

import pytest

from pyserve.control.state.applications import HttpRoutes
from pyserve.control.state.replica import Place
from pyserve.types import DeploymentKey, ServiceName
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.world import World, key, views_of


def world_with(policy: str) -> World:
    """Return a mesh in which one replica has said something."""
    world = World()
    world.deploy(Echo={"request_router_config": {"policy": policy}})
    world.settle()
    world.make_ready()
    [replica] = world.replicas()
    world.state.deployments[key()].services = (ServiceName("shop.Echo"),)
    replica.routing_stats_json = '{"load":1}'
    world.state.on_ready(
        replica.id, place=replica.place, now=world.now, metadata_json='{"gpu":"x"}'
    )
    return world


def replica_of(world: World) -> mesh_pb2.ReplicaView:
    routes = HttpRoutes(of_deployment={}, of_application={}, refused=())
    [replica] = views_of(world.state, routes, {})[key()].replicas
    return replica


@pytest.mark.parity("G-76")
def test_routers_with_a_policy_of_the_users_are_told_what_replicas_say():
    replica = replica_of(world_with("shop.policies:Own"))

    assert '{"load":1}' == replica.routing_stats_json
    assert '{"gpu":"x"}' == replica.replica_metadata_json


def test_other_routers_have_a_view_that_does_not_change():
    world = world_with("least")
    before = replica_of(world)
    world.replicas()[0].routing_stats_json = '{"load":2}'

    assert before == replica_of(world)
    assert ("", "") == (before.routing_stats_json, before.replica_metadata_json)


def test_what_a_replica_said_outlives_a_broken_stream():
    world = world_with("shop.policies:Own")
    [replica] = world.replicas()
    world.state.on_left(replica.id, now=world.now)
    world.state.on_joined(replica.id, pid=1, place=Place())

    assert '{"load":1}' == replica_of(world).routing_stats_json


def test_routers_are_told_where_balancers_reach_a_replica():
    world = world_with("least")
    [replica] = world.replicas()
    replica.place = Place(address="a:1", direct_http="a:2", direct_grpc="a:3")

    ends = replica_of(world).endpoints
    assert ("a:1", "a:2", "a:3") == (ends.address, ends.direct_http, ends.direct_grpc)


def test_a_prefix_of_the_class_is_told_from_that_of_the_application():
    world = world_with("least")
    world.state.deployments[key()].http_prefixes = ("/v2/models/m", "/v2/models/another")
    held: dict[DeploymentKey, tuple[str, ...]] = {key(): ("/shop", "/v2/models/m")}
    routes = HttpRoutes(of_deployment=held, of_application={}, refused=())

    view = views_of(world.state, routes, {})[key()]
    assert ["/shop", "/v2/models/m"] == list(view.http_prefixes)
    assert ["/v2/models/m"] == list(view.class_prefixes), "another deployment has the other one"
