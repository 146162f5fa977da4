"""Replicas out of rotation: who gets calls, and what is refused."""

import pytest

from pyserve.control.reconcile.cordon import cordon, cordon_notices
from pyserve.control.state.applications import HttpRoutes
from pyserve.errors import MeshNotFound, UsageError
from tests.unit.control.world import APPLICATION, World, key, views_of


@pytest.fixture
def world() -> World:
    world = World()
    world.deploy(Echo=2)
    world.settle()
    world.make_ready()
    world.settle()
    return world


def announced(world: World) -> list[str]:
    """Return the replicas that routers know."""
    view = views_of(world.state, HttpRoutes({}, {}, ()), {})[key()]
    return [each.replica_id for each in view.replicas]


def test_a_cordoned_replica_is_in_no_view_until_it_is_back(world: World) -> None:
    first, second = (item.id for item in world.serving())

    assert ((first,), ()) == _outcome(world, first)
    assert [second] == announced(world)
    assert [] == world.settle()
    assert ((first,), ()) == _outcome(world, first, undo=True)
    assert [first, second] == announced(world)


def test_a_second_cordon_changes_nothing(world: World) -> None:
    first, _ = (item.id for item in world.serving())
    cordon(world.state, first, undo=False)

    assert ((), ()) == _outcome(world, first)
    assert ((first,), ()) == _outcome(world, first, undo=True)
    assert ((), ()) == _outcome(world, first, undo=True)


def test_the_last_one_is_taken_and_told(world: World) -> None:
    first, second = (item.id for item in world.serving())
    cordon(world.state, first, undo=False)

    warning = f"{key()} has no replica in rotation now, and its calls wait until one is back"
    assert ((second,), (warning,)) == _outcome(world, second)
    assert [] == announced(world)


def test_a_node_takes_all_of_its_replicas_and_those_that_join_later(world: World) -> None:
    ids = tuple(item.id for item in world.serving())
    changed, warnings = _outcome(world, "node:here")
    assert (ids, 1) == (changed, len(warnings))
    assert ["node here is cordoned"] == [
        each.partition(":")[0] for each in cordon_notices(world.state)
    ]

    world.die(world.serving()[0])
    world.settle()
    world.make_ready()
    assert [] == announced(world)

    cordon(world.state, "node:here", undo=True)
    assert 2 == len(announced(world))
    assert [] == cordon_notices(world.state)


def test_one_that_is_cordoned_by_itself_stays_so_when_its_node_comes_back(world: World) -> None:
    first, second = (item.id for item in world.serving())
    cordon(world.state, first, undo=False)
    assert ((second,), 1) == ((changed := _outcome(world, "node:here"))[0], len(changed[1]))

    assert ((second,), ()) == _outcome(world, "node:here", undo=True)
    assert [second] == announced(world)


def test_whoever_runs_the_application_is_told(world: World) -> None:
    first, _ = (item.id for item in world.serving())
    cordon(world.state, first, undo=False)
    cordon(world.state, first, undo=True)

    assert [
        (key(), f"replica {first} is cordoned: it gets no new calls"),
        (key(), f"replica {first} gets calls again"),
    ] == world.state.incidents


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("Echo#9", r"no replica 'Echo#9'; there is: Echo#1, Echo#2; a node is written node:NAME"),
        ("node:there", r"no node 'there' with a replica; there is: node:here"),
        ("node:", r"no node '' with a replica"),
    ],
)
def test_unknown_names_are_refused_with_those_that_there_are(
    world: World, target: str, says: str
) -> None:
    for undo in (False, True):
        with pytest.raises(MeshNotFound, match=says):
            cordon(world.state, target, undo=undo)


def test_one_that_ends_is_refused(world: World) -> None:
    first, _ = (item.id for item in world.serving())
    world.state.on_delete(APPLICATION)
    world.settle()

    with pytest.raises(UsageError, match=f"replica {first} ends already"):
        cordon(world.state, first, undo=False)


def test_one_of_a_cordoned_node_comes_back_with_its_node_only(world: World) -> None:
    first, _ = (item.id for item in world.serving())
    cordon(world.state, "node:here", undo=False)

    with pytest.raises(UsageError, match="uncordon node:here"):
        cordon(world.state, first, undo=True)


def _outcome(
    world: World, target: str, *, undo: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = cordon(world.state, target, undo=undo)
    return found.replicas, found.warnings
