"""Versions, deltas, coalescing and resynchronisation of the registry; virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config.control import WATCH_COALESCE_S, WATCH_QUEUE_LENGTH_MAX
from pyserve.control.registry import Registry
from pyserve.routing.watcher import ViewState
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import mesh_pb2


def key(name):
    return DeploymentKey(ApplicationName("shop"), DeploymentName(name))


def views(**limits):
    """Views of deployments that differ in one number."""
    return {
        key(name): mesh_pb2.DeploymentView(
            key=mesh_pb2.DeploymentKey(application="shop", name=name), max_queued_requests=limit
        )
        for name, limit in limits.items()
    }


def heads(offered):
    """Return the parts of views without a replica, as they are now."""
    return {(key(name), None): offered.get(key(name)) for name in "abcd"}


def publish(registry, offered, now):
    registry.offer(heads(offered), now)
    registry.publish(now + WATCH_COALESCE_S)


def take_all(registry, watcher):
    updates = []
    while (data := registry.take(watcher)) is not None:
        updates.append(mesh_pb2.WatchUpdate.FromString(data))
    return updates


def no_news():
    pass


def test_what_is_new_can_be_published_at_once_and_what_has_changed_cannot():
    registry = Registry()
    publish(registry, views(a=1), 0.0)
    watcher = registry.watch(None, no_news)
    take_all(registry, watcher)

    registry.offer(heads(views(a=2)), 1.0)
    registry.publish_new()
    assert [] == take_all(registry, watcher)
    registry.offer(heads(views(a=2, b=1)), 1.0)
    registry.publish_new()

    (update,) = take_all(registry, watcher)
    assert ["a", "b"] == [view.key.name for view in update.changed]
    assert registry.next_wakeup() is None


def test_first_update_is_a_snapshot():
    registry = Registry()
    publish(registry, views(a=1, b=2), 0.0)

    (update,) = take_all(registry, registry.watch(None, no_news))

    assert (0, registry.version) == (update.base_version, update.version)
    assert ["a", "b"] == [view.key.name for view in update.changed]


def test_delta_holds_only_what_changed():
    registry = Registry()
    publish(registry, views(a=1, b=2, c=3), 0.0)
    watcher = registry.watch(None, no_news)
    (snapshot,) = take_all(registry, watcher)

    publish(registry, views(a=1, b=9), 1.0)

    (update,) = take_all(registry, watcher)
    assert snapshot.version == update.base_version
    assert ["b"] == [view.key.name for view in update.changed]
    assert ["c"] == [item.name for item in update.removed]


def test_changes_within_twenty_milliseconds_travel_together():
    registry = Registry()
    watcher = registry.watch(None, no_news)
    take_all(registry, watcher)
    registry.offer(heads(views(a=1)), 5.0)
    registry.offer(heads(views(a=2)), 5.01)

    assert pytest.approx(5.02) == registry.next_wakeup()
    assert not registry.publish(5.019)
    assert registry.publish(5.02)
    assert [2] == [
        view.max_queued_requests
        for update in take_all(registry, watcher)
        for view in update.changed
    ]
    assert registry.next_wakeup() is None


def test_change_that_is_taken_back_is_no_change():
    registry = Registry()
    publish(registry, views(a=1), 0.0)
    before = registry.version
    registry.offer(heads(views(a=2)), 1.0)
    registry.offer(heads(views(a=1)), 1.01)

    assert registry.next_wakeup() is None
    assert not registry.publish(2.0)
    assert before == registry.version


def test_update_is_serialized_once_for_all_watchers_of_a_kind():
    registry = Registry()
    watchers = [registry.watch(None, no_news) for _ in range(3)]
    for watcher in watchers:
        take_all(registry, watcher)

    publish(registry, views(a=1), 0.0)

    assert 1 == len({id(registry.take(watcher)) for watcher in watchers})


def test_watcher_hears_only_of_what_it_asked_for():
    registry = Registry()
    publish(registry, views(a=1, b=1), 0.0)
    watcher = registry.watch(frozenset({key("a")}), no_news)
    (snapshot,) = take_all(registry, watcher)
    assert ["a"] == [view.key.name for view in snapshot.changed]

    publish(registry, views(a=1, b=2), 1.0)
    assert [] == take_all(registry, watcher)
    publish(registry, views(a=2, b=2), 2.0)
    (update,) = take_all(registry, watcher)

    assert snapshot.version == update.base_version
    assert ["a"] == [view.key.name for view in update.changed]


def test_watcher_that_falls_behind_gets_a_snapshot():
    registry = Registry()
    watcher = registry.watch(None, no_news)
    for number in range(WATCH_QUEUE_LENGTH_MAX + 5):
        publish(registry, views(a=number), float(number))

    updates = take_all(registry, watcher)

    assert [0] == [update.base_version for update in updates]
    assert WATCH_QUEUE_LENGTH_MAX + 4 == updates[-1].changed[0].max_queued_requests
    publish(registry, views(a=7), 1000.0)
    (update,) = take_all(registry, watcher)
    assert updates[-1].version == update.base_version


def test_watcher_that_left_gets_nothing():
    registry = Registry()
    called = []
    watcher = registry.watch(None, lambda: called.append(1))
    registry.unwatch(watcher)
    registry.unwatch(watcher)

    publish(registry, views(a=1), 0.0)

    assert [] == called


def test_update_that_does_not_follow_is_refused_and_changes_nothing():
    state = ViewState()
    state.apply(mesh_pb2.WatchUpdate(version=3, changed=views(a=1).values()))

    assert not state.apply(
        mesh_pb2.WatchUpdate(base_version=4, version=5, removed=[{"application": "shop"}])
    )
    assert (3, views(a=1)) == (state.version, state.views)


NAMES = st.sampled_from("abcd")
OFFERS = st.dictionaries(NAMES, st.integers(0, 3))


@given(
    st.lists(
        st.one_of(
            OFFERS,
            st.tuples(st.sampled_from(["watch", "take", "leave"]), st.integers(0, 3)),
        ),
        max_size=80,
    ),
    st.one_of(st.none(), st.frozensets(NAMES.map(key))),
)
def test_every_watcher_ends_with_the_published_view(steps, interest):
    registry = Registry()
    watchers = []
    now = 0.0
    for step in steps:
        now += 1.0
        match step:
            case dict():
                publish(registry, views(**step), now)
            case ("watch", _):
                watchers.append((registry.watch(interest, no_news), ViewState()))
            case (kind, number) if watchers:
                watcher, state = watchers[number % len(watchers)]
                if kind == "leave":
                    registry.unwatch(watcher)
                    watchers.remove((watcher, state))
                elif (data := registry.take(watcher)) is not None:
                    assert state.apply(mesh_pb2.WatchUpdate.FromString(data))
    final = views(a=8, b=8)
    publish(registry, final, now + 1.0)

    expected = {name: view for name, view in final.items() if interest is None or name in interest}
    for watcher, state in watchers:
        for update in take_all(registry, watcher):
            assert state.apply(update)
        assert expected == state.views


def test_while_it_is_held_nobody_gets_anything_and_then_everybody_a_snapshot():
    registry = Registry()
    registry.begin(7000, held=True)
    told = []
    first = registry.watch(None, lambda: told.append("first"))
    publish(registry, views(a=1), 0.0)
    second = registry.watch(frozenset({key("a")}), lambda: told.append("second"))
    registry.publish_new()
    assert (None, None) == (registry.take(first), registry.take(second))
    assert registry.next_wakeup() is None
    assert 7001 == registry.pending_version
    assert [] == told

    registry.release()

    assert {"first", "second"} == set(told)
    for watcher in (first, second):
        (snapshot,) = take_all(registry, watcher)
        assert (0, 7001, 1) == (snapshot.base_version, snapshot.version, len(snapshot.changed))
    publish(registry, views(a=2), 1.0)
    (update,) = take_all(registry, first)
    assert (7001, 7002) == (update.base_version, update.version)


def test_a_registry_without_views_is_released_all_the_same():
    registry = Registry()
    registry.begin(7000, held=True)
    watcher = registry.watch(None, no_news)
    registry.release()
    (snapshot,) = take_all(registry, watcher)
    assert 0 == snapshot.base_version


def with_replicas(*names, said=""):
    """Parts of one deployment."""
    parts = {
        (key("a"), ReplicaId(name)): mesh_pb2.ReplicaView(replica_id=name, routing_stats_json=said)
        for name in names
    }
    return {(key("a"), None): views(a=1)[key("a")], **parts}


def published(*names):
    """Return a registry that has a deployment with these replicas, and routers of both kinds."""
    registry = Registry()
    registry.offer(with_replicas(*names), 0.0)
    registry.publish(WATCH_COALESCE_S)
    routers = [registry.watch(None, no_news, takes_patches=each) for each in (True, False)]
    for router in routers:
        take_all(registry, router)
    return registry, *routers


def test_a_patch_names_the_replicas_that_have_changed_and_no_other():
    registry, router, _ = published("x", "y", "z")
    gone = {(key("a"), ReplicaId("x")): None}
    registry.offer(with_replicas("y", said="new") | with_replicas("w") | gone, 1.0)
    registry.publish(2.0)

    (update,) = take_all(registry, router)

    assert ([], []) == (list(update.changed), list(update.removed))
    (patch,) = update.patched
    assert ("a", ["x"]) == (patch.key.name, list(patch.removed))
    assert {"w": "", "y": "new"} == {
        each.replica_id: each.routing_stats_json for each in patch.changed
    }


def test_a_router_of_an_earlier_release_gets_whole_views():
    registry, _, older = published("x", "y")
    registry.offer({(key("a"), ReplicaId("x")): None}, 1.0)
    registry.publish(2.0)

    (update,) = take_all(registry, older)

    assert [] == list(update.patched)
    assert [["y"]] == [[each.replica_id for each in view.replicas] for view in update.changed]


def test_where_the_head_has_changed_the_whole_view_comes_and_no_patch():
    registry, router, _ = published("x", "y")
    registry.offer({(key("a"), None): views(a=9)[key("a")]} | with_replicas_only("w"), 1.0)
    registry.publish(2.0)

    (update,) = take_all(registry, router)

    assert [] == list(update.patched)
    (view,) = update.changed
    assert (9, {"w", "x", "y"}) == (
        view.max_queued_requests,
        {each.replica_id for each in view.replicas},
    )


def with_replicas_only(*names):
    return {item: message for item, message in with_replicas(*names).items() if item[1]}


def test_a_patch_of_what_a_router_does_not_know_is_refused():
    state = ViewState()
    state.apply(mesh_pb2.WatchUpdate(version=3, changed=views(a=1).values()))
    patch = mesh_pb2.ViewPatch(key={"application": "shop", "name": "b"}, removed=["x"])

    assert not state.apply(mesh_pb2.WatchUpdate(base_version=3, version=4, patched=[patch]))
    assert (3, views(a=1)) == (state.version, state.views)


def test_a_view_that_was_handed_on_does_not_change_any_more():
    state = ViewState()
    view = mesh_pb2.DeploymentView(
        key={"application": "shop", "name": "a"}, replicas=[{"replica_id": "x"}]
    )
    state.apply(mesh_pb2.WatchUpdate(version=3, changed=[view]))
    before = state.views[key("a")]
    patch = mesh_pb2.ViewPatch(key=view.key, removed=["x"], changed=[{"replica_id": "y"}])

    assert state.apply(mesh_pb2.WatchUpdate(base_version=3, version=4, patched=[patch]))

    assert ["x"] == [each.replica_id for each in before.replicas]
    assert ["y"] == [each.replica_id for each in state.views[key("a")].replicas]


def test_a_snapshot_is_serialized_once_for_all_who_come_meanwhile():
    registry, *_ = published("x")
    watchers = [registry.watch(None, no_news) for _ in range(3)]
    assert 1 == len({id(registry.take(each)) for each in watchers})

    registry.offer(with_replicas("y"), 1.0)
    registry.publish(2.0)
    (update,) = take_all(registry, registry.watch(None, no_news))
    assert ["x", "y"] == sorted(each.replica_id for each in update.changed[0].replicas)
