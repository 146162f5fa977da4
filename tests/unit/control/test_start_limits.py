"""How starts are shared out; virtual time."""

import pytest

from pyserve.control.reconcile.decide import FailVersion
from pyserve.control.reconcile.start_limits import Room, Waits, held_back, limit_starts
from pyserve.control.state.mesh import Phase
from tests.unit.control.world import USER_ERROR, World, key


@pytest.fixture
def world():
    world = World()
    world.starts_max = 8
    return world


def starting(world, name="Echo"):
    return len(world.replicas(name, phase=Phase.STARTING))


def test_one_deployment_leaves_a_quarter_of_the_places_to_others(world):
    world.deploy(Echo=1000)
    world.settle()

    assert 6 == starting(world)


def test_each_end_of_a_start_lets_another_begin(world):
    world.deploy(Echo=1000)
    world.settle()
    ready, dying, *_ = world.replicas(phase=Phase.STARTING)

    world.make_ready(ready)
    world.settle()
    assert 6 == starting(world)
    world.die(dying)
    world.settle()
    assert 6 == starting(world)


def test_one_that_waits_for_resources_takes_no_place(world):
    """Else deployments that a machine has no room for would keep others from starting."""
    world.deploy(Echo=10, Side=1)
    world.settle()
    waiting = world.replicas("Echo", phase=Phase.STARTING)
    for replica in waiting:
        world.state.on_waiting(replica.id, "num_cpus=1")

    world.settle()
    assert 10 == starting(world)
    world.state.on_waiting(waiting[0].id, "")
    assert [] == world.settle()


def test_start_that_hangs_frees_its_place_at_its_timeout(world):
    world.deploy(Echo={"num_replicas": 1000, "startup_timeout_s": 30})
    world.settle()
    world.make_ready(world.replicas()[0])
    world.settle()
    first = {item.id for item in world.replicas(phase=Phase.STARTING)}

    begun = world.now
    assert begun + 30 == world.advance()

    second = {item.id for item in world.replicas(phase=Phase.STARTING)}
    assert 6 == len(second)
    assert set() == first & second


def test_deployments_take_turns_children_first(world):
    world.starts_max = 4
    world.deploy(Child=5, Parent=5)
    world.settle()

    assert (2, 1) == (starting(world, "Child"), starting(world, "Parent"))


def test_what_died_is_replaced_while_others_hang(world):
    world.deploy(Hanging=100, Serving=1)
    world.settle()
    world.make_ready(*world.replicas("Serving"))
    world.settle()
    assert 6 == starting(world, "Hanging")

    world.die(*world.replicas("Serving"))
    world.settle()
    assert 1 == starting(world, "Serving")


def test_version_that_raises_fails_before_all_its_slots_were_tried(world):
    world.deploy(Echo=1000)
    world.settle()
    for replica in world.replicas():
        world.fail(replica)
        world.settle()

    assert FailVersion(key(), USER_ERROR) in world.log
    assert 6 == len([item for item in world.log if "StartReplica" in repr(item)])


def test_those_that_wait_are_counted_and_told_once(world):
    world.deploy(Echo=1000)
    wanted = world.wanted()
    held = held_back(wanted, limit_starts(wanted, world.state.replicas, world.starts_max))
    waits = Waits(held, Room(8, "8 start at a time"))

    assert {key(): 994} == held
    assert "994 more wait for their turn: 8 start at a time" == waits.of(key())
    assert "" == waits.of(key("Other"))
    assert [(key(), waits.of(key()))] == waits.news(Waits())
    fewer = Waits({key(): 900}, waits.room)
    assert [] == fewer.news(waits)
    assert fewer.next_wakeup(world.now) is None


def test_want_of_memory_is_told_and_looked_at_again():
    full = Waits({key(): 5}, Room(8, "8 start at a time"))
    short = Waits({key(): 5}, Room(0, "5 MiB are left", is_short=True))

    assert [(key(), "5 more wait for their turn: 5 MiB are left")] == short.news(full)
    assert 11.0 == short.next_wakeup(10.0)
    assert Waits({}, short.room).next_wakeup(10.0) is None
