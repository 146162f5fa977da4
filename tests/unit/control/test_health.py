"""How deployments and applications are: the word, why, and since when. Virtual time."""

import pytest

from pyserve.control.health import (
    Health,
    application_health,
    deployment_health,
    observe,
)
from pyserve.control.state.mesh import Phase
from pyserve.types import ApplicationName
from tests.unit.control.world import APPLICATION, World, key


class Watched(World):
    """A world whose conditions are looked at after every change, as the controller does."""

    changing: frozenset[ApplicationName] = frozenset()

    def look(self) -> None:
        self.settle()
        observe(self.state, self.changing, self.now)

    def health(self, name: str = "Echo") -> Health:
        return deployment_health(self.state.deployments[key(name)], self.replicas(name))

    def application(self) -> Health:
        parts = [
            deployment_health(item, list(self.state.of_deployment(item.key)))
            for item in self.state.of_application(APPLICATION)
        ]
        return application_health(self.state, APPLICATION, parts, self.changing)

    def since(self, name: str = "Echo") -> tuple[str, float]:
        condition = self.state.conditions[key(name)]
        return condition.word, condition.since


@pytest.fixture
def world() -> Watched:
    return Watched()


def bring_up(world: Watched, **options: object) -> None:
    world.deploy(**options)
    world.settle()
    world.make_ready(*world.state.replicas.values())
    world.look()


@pytest.mark.parity("G-65")
def test_an_application_is_not_started_while_no_replica_of_it_may_start(world: Watched) -> None:
    world.starts_max = 0
    world.deploy(Echo=1)
    world.look()

    assert ("NOT_STARTED", "UPDATING") == (world.application().word, world.health().word)
    world.starts_max = 1
    world.look()
    assert "DEPLOYING" == world.application().word


@pytest.mark.parity("G-65")
def test_what_comes_up_says_how_far_it_is(world: Watched) -> None:
    world.deploy(Echo=2)
    world.look()
    first, _ = world.replicas()
    world.make_ready(first)

    said = "1 of 2 replicas are ready"
    assert Health("UPDATING", reason=said, message=said) == world.health()
    assert "Echo: 1 of 2 replicas are ready" == world.application().reason


@pytest.mark.parity("G-65")
def test_an_update_says_what_still_serves(world: Watched) -> None:
    bring_up(world, Echo=2)
    world.deploy(Echo=2)
    world.look()

    said = "0 of 2 replicas of the new version are ready, 2 of the version before still serve"
    assert ("UPDATING", said) == (world.health().word, world.health().reason)


def test_a_version_whose_starts_fail_says_why(world: Watched) -> None:
    world.deploy(Echo=2)
    world.settle()
    world.fail(world.replicas()[0])

    assert world.health().reason.endswith("; failures: 1, the first one: ValueError: no model")


@pytest.mark.parity("G-65")
def test_what_serves_has_a_reason_and_no_message(world: Watched) -> None:
    bring_up(world, Echo=2, Other=1, Nothing=0)

    assert Health("HEALTHY", "all 2 replicas serve", "") == world.health()
    assert "its replica serves" == world.health("Other").reason
    assert "no replica is wanted" == world.health("Nothing").reason
    assert Health("RUNNING", "each of its deployments serves", "") == world.application()


@pytest.mark.parity("G-65")
def test_a_larger_number_of_replicas_is_upscaling_until_all_serve(world: Watched) -> None:
    bring_up(world, Echo=1)
    before = world.serving()
    world.scale(3)
    world.look()

    assert ("UPSCALING", "1 of 3 replicas serve, up from 1") == (
        world.health().word,
        world.health().reason,
    )
    assert "RUNNING" == world.application().word
    world.make_ready()
    world.look()
    assert "HEALTHY" == world.health().word
    assert before == [item for item in world.serving() if item in before]


@pytest.mark.parity("G-65")
def test_a_smaller_number_is_downscaling_until_the_others_have_ended(world: Watched) -> None:
    bring_up(world, Echo=3)
    kept = [item for item in world.serving() if item.slot == 0]
    world.scale(1)
    world.look()

    said = "2 more than the 1 wanted replicas finish what they have"
    assert ("DOWNSCALING", said) == (world.health().word, world.health().reason)
    assert kept == world.serving()
    world.end_stopped()
    world.look()
    assert "HEALTHY" == world.health().word


@pytest.mark.parity("G-65")
def test_new_replicas_that_fail_make_it_unhealthy_and_not_upscaling(world: Watched) -> None:
    bring_up(world, Echo=1)
    world.scale(2)
    world.look()
    world.fail(*world.replicas(phase=Phase.STARTING))

    assert "UNHEALTHY" == world.health().word
    assert "1 of 2 replicas serve" in world.health().reason


def test_a_replica_that_dies_while_others_are_added_makes_it_unhealthy(world: Watched) -> None:
    bring_up(world, Echo=2)
    world.scale(3)
    world.look()
    world.die(world.serving()[0])

    assert "UNHEALTHY" == world.health().word


def test_a_deploy_that_scales_is_deploying_and_an_autoscaler_is_not(world: Watched) -> None:
    bring_up(world, Echo=1)
    world.scale(2)
    world.look()
    assert "RUNNING" == world.application().word

    world.changing = frozenset({APPLICATION})
    assert "DEPLOYING" == world.application().word


@pytest.mark.parity("G-65")
def test_what_is_removed_says_so_and_is_then_forgotten(world: Watched) -> None:
    bring_up(world, Echo=1)
    world.state.on_delete(APPLICATION)
    world.look()

    assert ("DELETING", "UPDATING") == (world.application().word, world.health().word)
    assert "its replicas finish what they have" in world.application().reason
    world.end_stopped()
    world.look()
    assert {} == world.state.conditions


@pytest.mark.parity("G-65")
def test_a_state_has_the_time_at_which_it_began(world: Watched) -> None:
    bring_up(world, Echo=1)
    begun_at = world.now
    for _ in range(3):
        world.now += 5
        world.look()
    assert ("HEALTHY", begun_at) == world.since()

    world.die(*world.serving())
    world.now += 5
    world.look()
    died_at = world.now
    world.now += 5
    world.look()
    assert ("UNHEALTHY", died_at) == world.since()
    assert ("UNHEALTHY", died_at) == (
        world.state.conditions[APPLICATION].word,
        world.state.conditions[APPLICATION].since,
    )

    world.make_ready()
    world.now += 5
    world.look()
    assert ("HEALTHY", world.now) == world.since()


def test_a_change_of_the_reason_alone_keeps_the_time(world: Watched) -> None:
    world.deploy(Echo=2)
    world.look()
    begun_at, before = world.now, world.health().reason
    world.now += 5
    world.make_ready(world.replicas()[0])
    world.look()

    assert before != world.health().reason
    assert ("UPDATING", begun_at) == world.since()
