"""The cause of a deployment's status, as Ray Serve calls it. Virtual time."""

import pytest

from pyserve.control.health import observe
from pyserve.control.reconcile.start_limits import Waits
from pyserve.control.report import application_statuses
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.mesh import Phase
from pyserve.driver.status import DeploymentStatusTrigger, plain_values, read_status
from pyserve.wire.v1 import control_pb2
from tests.unit.control.world import APPLICATION, World, key


class Told(World):
    """A world that is asked for its status after each change, as a driver asks."""

    def told(self) -> tuple[str, str]:
        self.settle()
        observe(self.state, (), self.now)
        applications = Applications({APPLICATION: ApplicationInfo("/", "Echo", deployed_at=7.0)})
        statuses = application_statuses(self.state, applications, Waits())
        found = read_status(control_pb2.StatusReply(applications=statuses))
        deployment = found.applications[APPLICATION].deployments["Echo"]
        assert isinstance(deployment.status_trigger, DeploymentStatusTrigger)
        return str(deployment.status), str(deployment.status_trigger)


@pytest.fixture
def world() -> Told:
    return Told()


def bring_up(world: Told, **options: object) -> None:
    world.deploy(**options)
    assert ("UPDATING", "CONFIG_UPDATE_STARTED") == world.told()
    world.make_ready()
    assert ("HEALTHY", "CONFIG_UPDATE_COMPLETED") == world.told()


def test_a_deploy_starts_and_is_completed(world: Told) -> None:
    bring_up(world, Echo=2)
    world.deploy(Echo=1)
    assert ("UPDATING", "CONFIG_UPDATE_STARTED") == world.told()


def test_a_number_that_grows_and_shrinks(world: Told) -> None:
    """From outside it is a configuration that changes; by load see below."""
    bring_up(world, Echo=1)
    world.scale(3)
    assert ("UPSCALING", "CONFIG_UPDATE_STARTED") == world.told()
    world.make_ready()
    assert ("HEALTHY", "UPSCALE_COMPLETED") == world.told()
    world.scale(1)
    assert ("DOWNSCALING", "CONFIG_UPDATE_STARTED") == world.told()
    world.end_stopped()
    assert ("HEALTHY", "DOWNSCALE_COMPLETED") == world.told()


def test_the_load_scales_on_its_own(world: Told) -> None:
    bring_up(world, Echo={"autoscaling_config": {"max_replicas": 4}})
    target = world.state.deployments[key("Echo")].target
    assert target is not None
    target.scaling.target = 2
    assert ("UPSCALING", "AUTOSCALING") == world.told()


def test_a_replica_that_dies_and_comes_back(world: Told) -> None:
    bring_up(world, Echo=1)
    world.die(*world.serving())
    assert ("UNHEALTHY", "HEALTH_CHECK_FAILED") == world.told()
    world.make_ready()
    assert ("HEALTHY", "UNSPECIFIED") == world.told()


def test_constructors_that_raise(world: Told) -> None:
    world.deploy(Echo=1)
    world.settle()
    world.fail(*world.replicas(phase=Phase.STARTING))
    assert ("DEPLOY_FAILED", "REPLICA_STARTUP_FAILED") == world.told()


def test_what_is_deleted(world: Told) -> None:
    bring_up(world, Echo=1)
    world.state.on_delete(APPLICATION)
    assert ("UPDATING", "DELETING") == world.told()


@pytest.mark.parametrize("said", ["", "A_WORD_OF_TOMORROW"])
def test_a_controller_of_another_release_may_say_nothing_or_more(said: str) -> None:
    deployment = control_pb2.DeploymentStatus(name="Echo", state="HEALTHY", trigger=said)
    application = control_pb2.ApplicationStatus(
        name="shop", state="RUNNING", deployments=[deployment]
    )

    found = read_status(control_pb2.StatusReply(applications=[application]))

    assert "UNSPECIFIED" == found.applications["shop"].deployments["Echo"].status_trigger


def test_what_is_counted_is_among_the_plain_values_too() -> None:
    replicas = [control_pb2.ReplicaStatus(state=each) for each in ("RUNNING", "SILENT", "STARTING")]
    deployment = control_pb2.DeploymentStatus(
        name="Echo", state="UPDATING", trigger="AUTOSCALING", replicas=replicas
    )
    application = control_pb2.ApplicationStatus(
        name="shop", state="RUNNING", deployments=[deployment]
    )
    ingresses = [control_pb2.IngressStatus(node="here", state="HEALTHY")]
    reply = control_pb2.StatusReply(applications=[application], ingresses=ingresses)

    found = plain_values(read_status(reply))

    assert {"here": "HEALTHY"} == found["proxies"]
    told = found["applications"]["shop"]["deployments"]["Echo"]
    assert {"RUNNING": 2, "STARTING": 1} == told["replica_states"]
    assert "AUTOSCALING" == told["status_trigger"]
