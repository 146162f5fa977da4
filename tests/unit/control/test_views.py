"""The deployments that routers hear about, including those that serve nothing yet."""

from pyserve.config import DeploymentOptions
from pyserve.control.state.applications import HttpRoutes
from pyserve.control.state.mesh import Desired, MeshState, Version
from pyserve.control.state.replica import Failure
from pyserve.types import ServiceName
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.world import APPLICATION, key, views_of

NOWHERE = HttpRoutes({}, {}, ())


def deployed(**options_by_name: dict[str, object]) -> MeshState:
    state = MeshState()
    state.on_deploy(
        APPLICATION,
        {
            key(name): Version(name, DeploymentOptions.of(options))
            for name, options in options_by_name.items()
        },
    )
    return state


def shown(state: MeshState) -> dict[str, mesh_pb2.DeploymentView]:
    return {found.deployment: view for found, view in views_of(state, NOWHERE, {}).items()}


def desired(state: MeshState, name: str = "Echo") -> Desired:
    return state.deployments[key(name)]


def test_a_deployment_that_starts_can_be_waited_for() -> None:
    state = deployed(Echo={"max_queued_requests": 7})

    view = shown(state)["Echo"]

    assert (7, [], []) == (view.max_queued_requests, list(view.services), list(view.replicas))


def test_one_that_has_failed_before_it_served_cannot() -> None:
    state = deployed(Echo={})
    state.on_version_failed(key(), Failure("ValueError: no model"))
    assert {} == shown(state)


def test_one_that_has_served_can_while_it_has_no_replica_and_shall_have_one() -> None:
    state = deployed(Echo={})
    desired(state).services = (ServiceName("s"),)
    assert ["s"] == list(shown(state)["Echo"].services)
    state.on_delete(APPLICATION)
    assert {} == shown(state)


def test_no_share_goes_to_a_deployment_before_its_services_are_known() -> None:
    state = deployed(Echo={"traffic": {f"{APPLICATION}/Canary": 0.05}}, Canary={})
    desired(state).services = (ServiceName("s"),)
    assert [] == list(shown(state)["Echo"].traffic)
    desired(state, "Canary").services = (ServiceName("s"),)
    assert ["Canary"] == [share.key.name for share in shown(state)["Echo"].traffic]


def test_one_that_nobody_starts_says_so_unless_the_load_may() -> None:
    zero: dict[str, object] = {"num_replicas": 0}
    scaling: dict[str, object] = {"num_replicas": "auto", "autoscaling_config": {"min_replicas": 0}}
    views = shown(deployed(One={}, Zero=zero, Auto=scaling))
    assert {"One": False, "Zero": True, "Auto": False} == {
        name: view.is_scaled_to_zero for name, view in views.items()
    }
