"""Rules of reconcile that hold in every history: random events, virtual time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pyserve.config.control import RESTART_BACKOFF_MAX_S
from pyserve.control.reconcile.decide import KillReplica, StartReplica, StopReplica
from pyserve.control.state.mesh import Phase
from tests.unit.control.world import World, key

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ready", "die", "fail", "leave", "unhealthy", "wait", "deploy", "end", "drain"]
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)


def apply_event(world, kind, number):
    replicas = list(world.state.replicas.values())
    replica = replicas[number % len(replicas)] if replicas else None
    match kind:
        case "deploy":
            options = {"startup_timeout_s": 30, "max_surge_percent": number % 3 * 50}
            world.deploy(Echo={"num_replicas": number, **options})
        case "wait":
            world.now += number * 3.0
        case "end":
            world.end_stopped()
        case _ if replica is None:
            pass
        case "ready" if replica.phase is Phase.STARTING:
            world.make_ready(replica)
        case "die":
            world.die(replica)
        case "fail" if replica.phase is Phase.STARTING:
            world.fail(replica)
        case "leave" if replica.joined:
            world.state.on_left(replica.id, now=world.now)
        case "unhealthy" if replica.phase is Phase.RUNNING:
            world.state.on_health(replica.id, healthy=False, now=world.now)
        case "drain" if replica.phase is Phase.RUNNING:
            world.state.on_draining(replica.id, grace_s=1, now=world.now)


@given(st.integers(1, 5), EVENTS, st.integers(1, 8))
def test_mesh_comes_to_what_is_wanted_once_replicas_behave(wanted, events, starts_max):
    world = World()
    world.starts_max = starts_max
    world.deploy(Echo=wanted)
    for kind, number in events:
        apply_event(world, kind, number)
        world.settle()

    version = world.deploy(Echo=wanted)["Echo"]
    world.behave()

    assert [version] * wanted == [item.version for item in world.serving()]
    assert wanted == len(world.state.replicas)
    assert world.state.deployments[key()].is_settled()
    assert [] == world.settle()


@given(st.integers(1, 5), EVENTS)
def test_last_serving_replica_stops_only_when_a_newer_one_serves(wanted, events):
    world = World()
    world.deploy(Echo=wanted)

    def check(action):
        if not isinstance(action, StopReplica) or action.reason == "is not healthy":
            return
        others = [item for item in world.serving() if item.id != action.replica_id]
        target = world.state.deployments[key()].target
        assert target is not None
        assert others or target.num_replicas == 0

    world.before_action = check
    for kind, number in events:
        apply_event(world, kind, number)
        world.settle()


@given(st.integers(0, 5), EVENTS)
def test_no_slot_is_filled_twice_and_no_replica_outlives_its_time(wanted, events):
    world = World()
    world.deploy(Echo=wanted)
    for kind, number in events:
        apply_event(world, kind, number)
        world.settle()

        places = [
            (item.version, item.slot)
            for item in world.replicas()
            if item.phase is not Phase.STOPPING
        ]
        assert len(set(places)) == len(places)
        overdue = [
            item
            for item in world.state.replicas.values()
            if item.phase is Phase.STARTING and world.now - item.created_at >= 300
        ]
        assert [] == overdue


@given(EVENTS)
def test_an_update_with_surge_has_no_more_processes_than_it_may(events):
    """Versions of four with half as many more; what drains counts until it has ended."""
    world = World()
    options = {"num_replicas": 4, "max_surge_percent": 50, "rolling_update_percentage": 0.5}
    world.deploy(Echo=options)

    def check(action):
        target = world.state.deployments[key()].target
        assert target is not None, "it was deployed, and nobody deletes it"
        is_update = any(item.version != target.id for item in world.serving())
        if isinstance(action, StartReplica) and is_update:
            assert len(world.replicas()) < 6

    world.before_action = check
    for kind, number in events:
        if kind == "deploy":
            world.deploy(Echo=options)
        else:
            apply_event(world, kind, number)
        world.settle()


@given(st.integers(0, 9), EVENTS, st.integers(1, 8))
def test_no_more_start_at_a_time_than_may(wanted, events, starts_max):
    world = World()
    world.starts_max = starts_max
    world.deploy(Echo=wanted)
    world.settle()
    for kind, number in events:
        apply_event(world, kind, number)
        world.settle()
        assert len(world.replicas(phase=Phase.STARTING)) <= starts_max


@given(EVENTS)
def test_killed_replicas_are_never_ones_that_serve_and_are_wanted(events):
    world = World()
    world.deploy(Echo=2)
    killed_while_serving = []

    def check(action):
        if isinstance(action, KillReplica):
            replica = world.state.replicas[action.replica_id]
            if replica.serves:
                killed_while_serving.append(replica)

    world.before_action = check
    for kind, number in events:
        apply_event(world, kind, number)
        world.settle()

    assert [] == killed_while_serving


@given(st.integers(1, 30))
def test_replica_that_dies_for_ever_costs_at_most_one_start_a_minute(deaths):
    world = World()
    world.deploy(Echo=1)
    world.settle()
    world.make_ready()
    world.settle()
    for _ in range(deaths + 8):
        world.die(*world.replicas())
        world.settle()
        if not world.replicas():
            world.advance()
        world.make_ready()

    before = world.now
    world.die(*world.replicas())
    world.settle()

    assert before + RESTART_BACKOFF_MAX_S == world.advance()


@given(st.integers(0, 3), EVENTS, st.integers(1, 8))
def test_no_gang_is_ever_there_in_part(wanted, events, starts_max):
    """Gangs of two: what is at rest is whole, and each has its places for itself."""
    world = World()
    world.starts_max = starts_max
    options = {"gang_scheduling_config": {"gang_size": 2}, "startup_timeout_s": 30}
    world.deploy(Echo={"num_replicas": 2 * wanted, **options})
    for kind, number in events:
        if kind == "deploy":
            surge = number % 3 * 50
            world.deploy(Echo={"num_replicas": 2 * number, "max_surge_percent": surge, **options})
        else:
            apply_event(world, kind, number)
        world.settle()

        live = [item for item in world.replicas() if item.phase is not Phase.STOPPING]
        gangs = Counter((item.version, item.slot // 2) for item in live)
        assert not gangs or {2} == set(gangs.values())
        places = [(item.version, item.slot) for item in live]
        assert len(set(places)) == len(places)

    version = world.deploy(Echo={"num_replicas": 2 * wanted, **options})["Echo"]
    world.behave()
    assert [version] * 2 * wanted == [item.version for item in world.serving()]
