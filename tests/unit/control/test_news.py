"""Routers that get change by change know the same as with a full view: random histories."""

from hypothesis import given
from hypothesis import strategies as st

from pyserve.control.registry import Registry
from pyserve.control.state.applications import HttpRoutes
from pyserve.control.views import News
from pyserve.routing.watcher import ViewState
from pyserve.types import ServiceName
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.test_reconcile_properties import apply_event
from tests.unit.control.world import APPLICATION, World, key, views_of

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("ready", "die", "leave", "unhealthy", "wait", "end", "drain", "fail"),
                *("join", "cordon", "stats", "services", "prefix", "shift", "policy", "delete"),
            ]
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)


class Told:
    """A world, and two routers that hear of it, one of which takes patches."""

    def __init__(self):
        self.world = World()
        self.prefixes = {}
        self.news = News(self.world.state)
        self.registry = Registry()
        self.routers = [
            (self.registry.watch(None, lambda: None, takes_patches=patches), ViewState())
            for patches in (True, False)
        ]
        self.policy = "least"

    def deploy(self, share=0.0):
        traffic = {f"{APPLICATION}/Other": share} if share else {}
        options = {"traffic": traffic, "request_router_config": {"policy": self.policy}}
        self.world.deploy(Echo={"num_replicas": 3, **options}, Other=2)

    def happen(self, kind, number):
        state = self.world.state
        replicas = list(state.replicas.values())
        replica = replicas[number % len(replicas)] if replicas else None
        match kind:
            case "services":
                for desired in state.deployments.values():
                    desired.services = (ServiceName(f"s{number % 3}"),)
            case "prefix":
                self.prefixes = {key(): (f"/{number % 2}",)}
            case "shift":
                self.deploy(number / 10)
            case "policy":
                self.policy = ("least", "shop.own:Policy")[number % 2]
                self.deploy()
            case "delete":
                state.on_delete(APPLICATION)
            case _ if replica is None:
                pass
            case "join":
                state.on_joined(replica.id, pid=1, place=replica.place)
            case "cordon":
                replica.cordoned = not replica.cordoned
            case "stats":
                replica.routing_stats_json = str(number)
            case _:
                apply_event(self.world, kind, number)
        self.world.settle()

    def hear(self):
        """Return what both routers know after this moment's update, and what there is to know."""
        routes = HttpRoutes(self.prefixes, {}, ())
        self.registry.offer(self.news.since_last(routes, {}), self.world.now)
        self.registry.publish(self.world.now + 1)
        for watcher, view in self.routers:
            while (update := self.registry.take(watcher)) is not None:
                assert view.apply(mesh_pb2.WatchUpdate.FromString(update))
        known = [sorted_views(view.views) for _, view in self.routers]
        return known, sorted_views(views_of(self.world.state, routes, {}))


def sorted_views(views):
    """Replicas stand in no order."""
    found = {}
    for name, view in views.items():
        found[name] = mesh_pb2.DeploymentView()
        found[name].CopyFrom(view)
        del found[name].replicas[:]
        found[name].replicas.extend(sorted(view.replicas, key=lambda each: each.replica_id))
    return found


@given(EVENTS, st.integers(1, 4))
def test_routers_know_what_there_is_to_know(events, at_once):
    told = Told()
    told.deploy()
    told.world.settle()
    for number, (kind, argument) in enumerate(events):
        told.happen(kind, argument)
        if number % at_once == 0:
            known, everything = told.hear()
            assert [everything, everything] == known
    known, everything = told.hear()
    assert [everything, everything] == known


def test_what_has_not_changed_is_not_looked_at():
    told = Told()
    told.deploy()
    told.world.settle()
    told.world.make_ready()
    told.hear()
    routes = HttpRoutes({}, {}, ())
    assert {} == told.news.since_last(routes, {})

    replica = told.world.replicas()[0]
    replica.cordoned = True

    assert {(replica.key, replica.id): None} == told.news.since_last(routes, {})
