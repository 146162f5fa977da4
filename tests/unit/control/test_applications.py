"""Who holds which route prefix, while applications come, change and go."""

from __future__ import annotations

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.state.applications import Applications
from pyserve.control.state.mesh import Desired, MeshState, Version
from pyserve.control.state.replica import Failure
from pyserve.errors import OptionError, UsageError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ServiceName
from pyserve.wire.v1 import control_pb2
from tests.unit.control.world import views_of


class World:
    """Applications with one deployment each, named ``Main``."""

    def __init__(self) -> None:
        self.applications = Applications()
        self.state = MeshState()

    def deploy(
        self,
        name: str,
        prefix: str,
        *,
        default: bool = False,
        num_replicas: int = 1,
        takes_http: bool = False,
    ) -> Desired:
        """Deploy; nothing is ready yet. ``takes_http``: that much the driver knows."""
        application = ApplicationName(name)
        request = control_pb2.DeployRequest(
            application=name,
            ingress_deployment="Main",
            route_prefix=prefix,
            route_prefix_is_default=default,
        )
        info = self.applications.check(application, request, self.state)
        self.applications.admit(application, info, self.state)
        key = DeploymentKey(application, DeploymentName("Main"))
        options = DeploymentOptions(num_replicas=num_replicas)
        version = Version(f"v{len(self.state.notes)}", options, takes_http=takes_http)
        self.state.on_deploy(application, {key: version})
        self.applications.settle(self.state)
        return self.state.deployments[key]

    def ready(self, name: str, prefix: str, *, default: bool = False, http: bool = True) -> Desired:
        """Deploy and let it come up."""
        desired = self.deploy(name, prefix, default=default)
        self.come_up(desired, http=http)
        return desired

    def come_up(self, desired: Desired, *, http: bool = True) -> None:
        """Its replicas are ready."""
        desired.services, desired.http = (ServiceName("s"),), http
        self.state.on_version_completed(desired.key)
        self.applications.settle(self.state)

    def prefixes(self) -> dict[str, tuple[str, ...]]:
        """The contents of the views, by application."""
        views = views_of(self.state, self.applications.routes(self.state), self.applications.infos)
        return {
            key.application: tuple(view.http_prefixes)
            for key, view in views.items()
            if view.services or view.http_prefixes
        }


@pytest.fixture
def world() -> World:
    """A mesh without applications."""
    return World()


def test_prefix_leads_to_the_application_that_asked_for_it(world: World) -> None:
    world.ready("shop", "/shop")
    world.ready("hidden", "")

    assert {"shop": ("/shop",), "hidden": ()} == world.prefixes()


@pytest.mark.parity("G-38")
def test_second_application_with_a_prefix_is_refused_and_both_are_named(world: World) -> None:
    world.ready("one", "/shop")

    with pytest.raises(UsageError, match=r"'/shop' of application 'two' belongs to .* 'one'"):
        world.deploy("two", "/shop")

    assert {"one": ("/shop",)} == world.prefixes()


def test_prefix_of_an_application_that_still_starts_is_taken(world: World) -> None:
    world.deploy("one", "/shop")

    with pytest.raises(UsageError, match="'one'"):
        world.deploy("two", "/shop")


def test_application_without_plain_http_holds_no_prefix(world: World) -> None:
    world.ready("grpc", "/", http=False)
    world.ready("web", "/")

    assert {"grpc": (), "web": ("/",)} == world.prefixes()


def test_default_prefix_goes_to_the_first_that_takes_http(world: World) -> None:
    world.ready("grpc", "/", default=True, http=False)
    world.ready("first", "/", default=True)
    world.ready("second", "/", default=True)

    assert {"grpc": (), "first": ("/",), "second": ()} == world.prefixes()
    ((key, prefix, holder),) = world.applications.routes(world.state).refused
    assert ("second", "/", "first") == (key.application, prefix, holder.application)


def test_default_prefix_is_no_obstacle_while_nobody_knows_of_http(world: World) -> None:
    world.deploy("grpc", "/", default=True)

    world.ready("web", "/")

    assert ("/",) == world.prefixes()["web"]


def test_default_prefix_falls_to_the_next_when_its_holder_ends(world: World) -> None:
    first = world.ready("first", "/", default=True)
    world.ready("second", "/", default=True)

    world.state.on_delete(first.key.application)
    world.state.on_forget(first.key)
    world.applications.settle(world.state)

    assert {"second": ("/",)} == world.prefixes()


def test_new_prefix_and_the_one_before_lead_to_it_until_the_deploy_has_settled(
    world: World,
) -> None:
    world.ready("shop", "/old")

    desired = world.deploy("shop", "/new")
    assert {"/old", "/new"} == set(world.prefixes()["shop"])

    world.come_up(desired)
    assert {"shop": ("/new",)} == world.prefixes()


def test_prefix_before_is_kept_when_the_deploy_fails(world: World) -> None:
    world.ready("shop", "/old")

    desired = world.deploy("shop", "/new")
    world.state.on_version_failed(desired.key, Failure("it did not start"))
    world.applications.settle(world.state)

    assert {"shop": ("/old",)} == world.prefixes()


def test_prefixes_of_the_deployment_itself_need_no_route_prefix(world: World) -> None:
    desired = world.ready("models", "", http=False)
    desired.http_prefixes = ("/v2/models/resnet",)

    assert {"models": ("/v2/models/resnet",)} == world.prefixes()


@pytest.mark.parametrize("prefix", ["shop", "/shop/", "//", "/a//b", "/{id}", "/a b", "/a?b", "/-"])
def test_what_is_no_prefix_is_refused(world: World, prefix: str) -> None:
    with pytest.raises(OptionError, match="route_prefix="):
        world.deploy("shop", prefix)


@pytest.mark.parametrize("prefix", ["/-/x", "/../x", "/a/./b"])
def test_reserved_and_relative_prefixes_are_refused(world: World, prefix: str) -> None:
    with pytest.raises(OptionError, match="route_prefix="):
        world.deploy("shop", prefix)


def test_prefix_of_one_without_replicas_leads_to_it_all_the_same(world: World) -> None:
    desired = world.deploy("shop", "/shop", num_replicas=0)
    world.deploy("later", "/later")
    routes = world.applications.routes(world.state)

    assert {desired.key: ("/shop",)} == routes.of_deployment


def test_one_without_replicas_keeps_the_default_prefix_from_nobody(world: World) -> None:
    none = world.deploy("none", "/", default=True, num_replicas=0)
    assert {none.key: ("/",)} == world.applications.routes(world.state).of_deployment

    shop = world.ready("shop", "/", default=True)
    assert {shop.key: ("/",)} == world.applications.routes(world.state).of_deployment


def test_requests_are_led_to_what_comes_up_where_its_driver_knows_that_it_takes_them(
    world: World,
) -> None:
    world.deploy("silent", "/silent")
    world.deploy("shop", "/shop", takes_http=True)

    assert {"shop": ("/shop",)} == world.prefixes()


def test_what_has_failed_to_come_up_keeps_the_default_prefix_from_nobody(world: World) -> None:
    shop = world.deploy("shop", "/", default=True, takes_http=True)
    assert {"shop": ("/",)} == world.prefixes()
    assert shop.target is not None
    shop.target.failed = True

    assert {} == world.prefixes()
    world.ready("blog", "/", default=True)
    assert {"blog": ("/",)} == world.prefixes()


def test_what_comes_up_takes_the_default_prefix_from_nobody_who_serves(world: World) -> None:
    world.ready("blog", "/", default=True)
    world.deploy("shop", "/", default=True, takes_http=True)

    assert {"blog": ("/",)} == world.prefixes()


def test_what_turns_out_not_to_take_plain_http_gives_its_prefix_back(world: World) -> None:
    shop = world.deploy("shop", "/shop", takes_http=True)
    world.come_up(shop, http=False)

    assert {"shop": ()} == world.prefixes()
