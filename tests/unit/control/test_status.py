"""The state of an application: that of its worst deployment."""

from pyserve.control.health import observe
from pyserve.control.reconcile.start_limits import Waits
from pyserve.control.report import application_statuses
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.mesh import Phase
from pyserve.wire.v1 import control_pb2
from tests.unit.control.world import APPLICATION, World


def told(world: World) -> control_pb2.ApplicationStatus:
    applications = Applications({APPLICATION: ApplicationInfo("/", "Echo", deployed_at=7.0)})
    (found,) = application_statuses(world.state, applications, Waits())
    return found


def running(**options_by_name: object) -> World:
    world = World()
    world.deploy(**options_by_name)
    world.settle()
    world.make_ready(*world.state.replicas.values())
    world.settle()
    return world


def test_it_deploys_until_every_replica_serves():
    world = World()
    world.deploy(Echo=1, Other=1)
    world.settle()
    assert "DEPLOYING" == told(world).state

    world.make_ready(*world.replicas("Echo"))
    world.settle()
    assert ("DEPLOYING", "Other: 0 of 1 replicas are ready") == (
        told(world).state,
        told(world).message,
    )

    world.make_ready(*world.replicas("Other"))
    world.settle()
    assert ("RUNNING", "", 7.0) == (told(world).state, told(world).message, told(world).deployed_at)


def test_a_replica_that_is_missing_makes_it_unhealthy():
    world = running(Echo=2, Other=1)
    world.die(world.replicas("Echo")[0])
    world.settle()
    assert "UNHEALTHY" == told(world).state
    # With how the last one ended, which is why there is none now.
    told_why = "Echo: 1 of 2 replicas serve; replica Echo#1 was killed by SIGKILL"
    assert told_why == told(world).message

    world.make_ready()
    world.settle()
    assert "RUNNING" == told(world).state


def test_a_first_deploy_that_fails_is_told():
    world = World()
    world.deploy(Echo=1, Other=1)
    world.settle()
    world.fail(*world.replicas("Echo"))
    world.settle()
    assert "DEPLOY_FAILED" == told(world).state
    assert "Echo: ValueError: no model" in told(world).message


def test_what_served_before_a_deploy_that_failed_runs_and_tells_of_it():
    world = running(Echo=1)
    world.deploy(Echo=1)
    world.settle()
    world.fail(*world.replicas(phase=Phase.STARTING))
    world.settle()
    assert "RUNNING" == told(world).state
    assert "Echo: the last deploy failed" in told(world).message


def test_one_that_is_being_removed_says_so():
    world = running(Echo=1)
    world.state.on_delete(APPLICATION)
    world.settle()
    assert "DELETING" == told(world).state


def test_what_a_new_controller_still_awaits_is_told_as_it_was():
    world = running(Echo=1)
    observe(world.state, (), now=5.0)
    (replica,) = world.replicas("Echo")
    replica.joined, replica.silent = False, True
    assert "UNHEALTHY" == told(world).state

    world.state.awaited = frozenset([APPLICATION])
    (deployment,) = told(world).deployments
    assert ("RUNNING", "HEALTHY") == (told(world).state, deployment.state)
    assert ("a new controller waits for its replicas to join again", 5.0) == (
        deployment.reason,
        deployment.since,
    )


def test_what_was_unhealthy_before_a_new_controller_is_so_while_it_waits():
    world = running(Echo=1)
    world.replicas("Echo")[0].silent = True
    observe(world.state, (), now=5.0)
    world.state.awaited = frozenset([APPLICATION])
    assert "UNHEALTHY" == told(world).state
