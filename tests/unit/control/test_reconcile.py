"""What the mesh does next, in every situation that has a rule; virtual time."""

import pytest

from pyserve.config.control import (
    KILL_MARGIN_S,
    REJOIN_TIMEOUT_S,
    RESTART_FORGET_S,
    restart_delay_s,
)
from pyserve.control.reconcile.decide import (
    CompleteVersion,
    FailVersion,
    ForgetDeployment,
    KillReplica,
    StartReplica,
    StopReplica,
)
from pyserve.control.state.mesh import Phase
from pyserve.control.state.replica import Failure, Place
from tests.unit.control.world import APPLICATION, USER_ERROR, World, key


@pytest.fixture
def world():
    return World()


def running(world, count=2, **options):
    """Bring a version of ``count`` replicas up; return its id."""
    version = world.deploy(Echo={"num_replicas": count, **options})["Echo"]
    world.settle()
    world.make_ready()
    world.settle()
    return version


def test_missing_replicas_start_at_once(world):
    version = world.deploy(Echo=3)["Echo"]

    assert [StartReplica(key(), version, slot) for slot in range(3)] == world.settle()
    assert [] == world.settle()


def test_version_completes_when_all_are_ready(world):
    world.deploy(Echo=2)
    world.settle()
    first, second = world.replicas()

    world.make_ready(first)
    assert [] == world.settle()
    world.make_ready(second)
    assert [CompleteVersion(key())] == world.settle()


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (World.die, "was killed by SIGKILL"),
        (World.fail, "failed"),
    ],
)
def test_start_that_fails_is_told_once(world, end, says):
    world.deploy(Echo=1)
    world.settle()
    (replica,) = world.replicas()

    end(world, replica)

    starts, *others = [note for _, note in world.state.notes]
    assert f"replica {replica.id} starts" == starts
    assert [f"replica {replica.id} {says}"] == others


def test_start_that_hangs_is_told_once(world):
    world.deploy(Echo={"startup_timeout_s": 5})
    world.settle()
    (replica,) = world.replicas()

    world.advance()

    told = [note for _, note in world.state.notes if note.startswith(f"replica {replica.id} ")]
    assert [f"replica {replica.id} starts", f"replica {replica.id} failed"] == [
        note.partition(":")[0] for note in told
    ]


def test_deployment_of_no_replicas_completes_at_once(world):
    world.deploy(Echo=0)

    assert [CompleteVersion(key())] == world.settle()


@pytest.mark.parametrize(
    ("deaths", "delay_s"), [(1, 0), (2, 1), (3, 2), (4, 4), (8, 60), (10_000, 60)]
)
def test_restart_delay_doubles_up_to_a_minute(deaths, delay_s):
    assert delay_s == restart_delay_s(deaths)


def test_dead_replicas_are_replaced_at_once_then_later(world):
    version = running(world)

    world.die(*world.serving())
    assert [StartReplica(key(), version, 0), StartReplica(key(), version, 1)] == world.settle()

    world.make_ready()
    died_at = world.now
    world.die(world.serving()[0])
    assert [] == world.settle()
    assert died_at + 1.0 == world.advance()
    assert StartReplica(key(), version, 0) == world.log[-1]


def test_death_after_a_long_service_counts_as_a_first_one(world):
    version = running(world, count=1)
    for _ in range(2):
        world.die(*world.serving())
        world.settle()
        world.now += 1
        world.settle()
        world.make_ready()
    world.now += RESTART_FORGET_S

    world.die(*world.serving())

    assert [StartReplica(key(), version, 0)] == world.settle()


def test_version_fails_when_every_first_replica_raised(world):
    world.deploy(Echo=2)
    world.settle()
    first, second = world.replicas()

    world.fail(first)
    assert [] == world.settle()
    world.fail(second)

    assert [FailVersion(key(), USER_ERROR)] == world.settle()
    assert USER_ERROR == world.state.deployments[key()].failure
    assert [] == world.replicas(phase=Phase.STARTING)
    assert world.advance() is None


def test_replica_that_raised_is_tried_again_once_another_is_ready(world):
    version = world.deploy(Echo=2)["Echo"]
    world.settle()
    first, second = world.replicas()
    world.fail(first)
    assert [] == world.settle()

    world.make_ready(second)

    assert [StartReplica(key(), version, 0)] == world.settle()


def test_constructor_that_hangs_fails_its_version(world):
    world.deploy(Echo={"num_replicas": 1, "startup_timeout_s": 5})
    started_at = world.now
    world.settle()

    assert started_at + 5 == world.advance()
    failure = world.state.deployments[key()].failure
    assert failure is not None
    assert "startup_timeout_s" in failure.summary
    assert [] == world.replicas()


def test_hanging_constructor_is_told_of_the_deployments_that_it_may_wait_for(world):
    world.deploy(
        Echo={"num_replicas": 1, "startup_timeout_s": 5},
        Second={"num_replicas": 1, "startup_timeout_s": 7},
        Third=1,
    )
    world.settle()
    world.make_ready(world.replicas("Third")[0])

    world.advance()

    failure = world.state.deployments[key()].failure
    assert failure is not None
    assert "; Second had no replica yet: deployments that call each other" in failure.summary


def test_start_killed_from_outside_is_tried_again(world):
    version = world.deploy(Echo=1)["Echo"]
    world.settle()

    world.die(*world.replicas())

    assert [StartReplica(key(), version, 0)] == world.settle()


def test_starts_that_end_without_a_word_fail_after_three(world):
    world.deploy(Echo=1)
    world.settle()
    for _ in range(2):
        world.die(*world.replicas())
        world.settle()
        if not world.replicas():
            world.advance()
    world.die(*world.replicas())

    assert isinstance(world.settle()[0], FailVersion)


def test_one_ready_replica_keeps_the_version_alive_until_the_retries_are_used_up(world):
    world.deploy(Echo={"num_replicas": 2, "max_constructor_retry_count": 3})
    world.settle()
    first, second = world.replicas()
    world.make_ready(first)
    world.fail(second)
    for _ in range(2):
        world.settle()
        if not world.replicas(phase=Phase.STARTING):
            world.advance()
        world.fail(*world.replicas(phase=Phase.STARTING))

    said = world.settle()

    assert FailVersion(key(), USER_ERROR) == said[0]


def test_old_version_drains_only_when_the_new_one_serves(world):
    old = running(world, count=1)
    new = world.deploy(Echo=1)["Echo"]

    assert [StartReplica(key(), new, 0)] == world.settle()
    assert 1 == len(world.serving(version=old))
    world.make_ready()
    assert [
        StopReplica(world.replicas()[0].id, 20.0, "is not needed any more"),
        CompleteVersion(key()),
    ] == world.settle()
    assert [] == world.serving(version=old)


def test_update_rolls_in_steps_of_its_share(world):
    running(world, count=10)
    world.deploy(Echo={"num_replicas": 10, "rolling_update_percentage": 0.3})

    world.settle()
    assert 3 == len(world.replicas(phase=Phase.STARTING))
    assert 10 == len(world.serving())
    world.make_ready()
    world.settle()
    assert 3 == len(world.replicas(phase=Phase.STARTING))
    assert 10 == len(world.serving())


def test_failed_update_leaves_the_old_version_serving(world):
    old = running(world, count=2)
    world.deploy(Echo=2)
    world.settle()

    world.fail(*world.replicas(phase=Phase.STARTING))
    world.settle()

    assert 2 == len(world.serving(version=old))
    assert USER_ERROR == world.state.deployments[key()].failure
    world.die(world.serving()[0])
    assert [StartReplica(key(), old, 0)] == world.settle()


def test_what_was_not_complete_yet_serves_on_when_its_update_fails(world):
    old = world.deploy(Echo=2)["Echo"]
    world.settle()
    world.make_ready(world.replicas()[0])
    world.deploy(Echo=1)
    world.settle()

    world.fail(*[item for item in world.replicas(phase=Phase.STARTING) if item.version != old])
    world.settle()
    world.make_ready(*world.replicas(phase=Phase.STARTING))
    world.settle()

    assert 2 == len(world.serving(version=old))
    assert world.state.deployments[key()].is_settled()


def test_failed_update_brings_back_what_the_deploy_had_replaced_elsewhere(world):
    old = world.deploy(Echo=1, Side=1)
    world.settle()
    world.make_ready(*world.replicas("Echo"), *world.replicas("Side"))
    world.settle()
    world.deploy(Echo=1, Side=1)
    world.settle()
    world.make_ready(*world.replicas("Side", Phase.STARTING))
    world.settle()
    world.end_stopped()

    world.fail(*world.replicas("Echo", Phase.STARTING))
    world.settle()
    world.make_ready(*world.replicas("Side", Phase.STARTING))
    world.settle()

    assert old["Side"] == world.serving("Side")[0].version
    assert 1 == len(world.serving("Side"))


def test_deployment_left_out_ends_after_the_rest_is_complete(world):
    world.deploy(Echo=1, Side=1)
    world.settle()
    world.make_ready(*world.replicas("Echo"), *world.replicas("Side"))
    world.settle()

    world.deploy(Echo=1)
    world.settle()
    assert 1 == len(world.serving("Side"))
    world.make_ready(*world.replicas("Echo", Phase.STARTING))
    world.settle()
    assert [] == world.serving("Side")
    world.end_stopped()
    assert ForgetDeployment(key("Side")) in world.settle()


def test_delete_drains_and_forgets(world):
    running(world)
    world.state.on_delete(APPLICATION)

    assert {StopReplica} == {type(action) for action in world.settle()}
    world.end_stopped()
    assert [ForgetDeployment(key())] == world.settle()
    assert {} == world.state.deployments


def test_one_that_has_joined_may_be_in_its_constructor_and_has_its_grace_too(world):
    """Its ``__del__`` gives back whatever the constructor has taken."""
    world.deploy(Echo={"num_replicas": 2, "graceful_shutdown_timeout_s": 3})
    world.settle()
    joined, launched = world.replicas()
    world.state.on_joined(joined.id, pid=1, place=Place(node="here"))
    world.state.on_delete(APPLICATION)

    reason = "is not needed any more"
    wanted = [StopReplica(joined.id, 3.0, reason), KillReplica(launched.id, reason)]
    assert wanted == world.settle()
    assert world.now + 3 + KILL_MARGIN_S == world.advance()
    assert [] == world.replicas()


def test_drain_that_takes_too_long_ends_in_a_kill_that_is_told(world):
    running(world, count=1, graceful_shutdown_timeout_s=3)
    (replica,) = world.replicas()
    world.state.on_delete(APPLICATION)
    world.settle()
    assert [] == world.state.incidents

    assert world.now + 3 + KILL_MARGIN_S == world.advance()
    assert any(isinstance(action, KillReplica) for action in world.log)
    assert [] == world.replicas()
    text = (
        f"replica {replica.id} was killed 5 s after it was to end: its last calls or hooks "
        "(lifespan, __del__) took longer than its grace of 3 s"
    )
    assert [(key(), text)] == world.state.incidents


def test_three_failed_checks_in_a_row_replace_the_replica(world):
    version = running(world, count=1)
    (replica,) = world.serving()
    for healthy in (False, False, True, False, False):
        world.state.on_health(replica.id, healthy=healthy, now=world.now)
        assert [] == world.settle()

    world.state.on_health(replica.id, healthy=False, now=world.now)

    assert [
        StopReplica(replica.id, 20.0, "is not healthy"),
        StartReplica(key(), version, 0),
    ] == world.settle()


def test_silence_after_a_failed_check_counts_as_more_of_them(world):
    running(world, count=1, health_check_period_s=1, health_check_timeout_s=2)
    (replica,) = world.serving()
    world.state.on_health(replica.id, healthy=False, now=world.now)

    assert world.now + 2 * (1 + 2) == world.advance()
    assert StopReplica(replica.id, 20.0, "is not healthy") in world.log


def test_silence_of_a_healthy_replica_means_nothing(world):
    running(world, count=1, health_check_period_s=1, health_check_timeout_s=2)
    (replica,) = world.serving()
    for healthy in (False, True):
        world.state.on_health(replica.id, healthy=healthy, now=world.now)

    assert world.advance() is None
    world.now += 1000
    assert [] == world.settle()


def test_replica_that_left_may_come_back(world):
    running(world, count=1)
    (replica,) = world.serving()
    world.state.on_left(replica.id, now=world.now)
    assert [] == world.settle()
    assert [] == world.serving()

    world.now += REJOIN_TIMEOUT_S / 2
    world.make_ready(replica)

    assert [replica] == world.serving()
    assert world.advance() is None


def test_replica_that_left_for_good_is_killed_and_replaced(world):
    version = running(world, count=1)
    (replica,) = world.serving()
    world.state.on_left(replica.id, now=world.now)

    assert world.now + REJOIN_TIMEOUT_S == world.advance()
    assert [StartReplica(key(), version, 0)] == world.log[-1:]
    assert replica.id not in world.state.replicas


def test_replica_that_drains_by_itself_is_replaced(world):
    version = running(world, count=1)
    (replica,) = world.serving()

    world.state.on_draining(replica.id, grace_s=5, now=world.now)

    assert [StartReplica(key(), version, 0)] == world.settle()


def test_user_error_is_what_the_failure_tells(world):
    world.deploy(Echo=1)
    world.settle()
    world.die(*world.replicas())
    world.settle()
    world.fail(*world.replicas())
    world.settle()

    failure = world.state.deployments[key()].failure

    assert Failure("ValueError: no model", "Traceback ...", user_code=True) == failure


def test_more_replicas_are_started_beside_those_that_serve(world):
    version = running(world, count=1)
    before = world.serving()
    world.scale(3)

    assert [StartReplica(key(), version, slot) for slot in (1, 2)] == world.settle()
    world.make_ready()
    assert [CompleteVersion(key())] == world.settle()
    assert before == world.serving()[:1]


def test_fewer_replicas_are_reached_when_the_last_ones_have_ended(world):
    running(world, count=3)
    world.scale(1)

    assert {StopReplica} == {type(action) for action in world.settle()}
    assert [0] == [item.slot for item in world.serving()]
    world.end_stopped()
    assert [CompleteVersion(key())] == world.settle()


def test_the_first_replica_after_none_is_tried_again_when_it_fails(world):
    """Nobody gives up what was complete, so somebody has to go on."""
    version = world.deploy(Echo=0)["Echo"]
    world.settle()
    world.scale(1)
    world.settle()
    world.fail(*world.replicas())

    assert [StartReplica(key(), version, 0)] == world.settle()
