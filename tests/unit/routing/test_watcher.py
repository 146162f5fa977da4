"""The feed of a routing table, against a controller that is scripted update by update."""

import asyncio

import grpc
import pytest

from pyserve.config import NodeSettings
from pyserve.control.server.transport import make_server
from pyserve.routing import feed as feed_module
from pyserve.routing.feed import TableFeed
from pyserve.routing.watcher import Way
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, MeshAddress
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc
from tests.support.waiting import eventually

TIMEOUT_S = 30.0
TOKEN = b"token"


class Controller(mesh_pb2_grpc.MeshServicer):
    """Sends what the test puts into ``updates``; ``None`` ends the stream."""

    def __init__(self):
        self.updates: asyncio.Queue[mesh_pb2.WatchUpdate | None] = asyncio.Queue()
        self.requests: list[mesh_pb2.WatchRequest] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.loads: list[tuple[str, int, int]] = []

    async def Observe(self, requests, context):
        async for load in requests:
            self.loads += [(each.key.name, each.parked, each.offered) for each in load.deployments]
        return mesh_pb2.ObserveReply()

    async def Watch(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        while (update := await self.updates.get()) is not None:
            yield update


class Table:
    """Records what is applied, by the deployments' names."""

    def __init__(self):
        self.applied: list[tuple[int, list[str]]] = []
        self.counts: dict[str, dict[str, object]] = {}

    def apply(self, version, deployments):
        self.applied.append((version, sorted(deployments)))

    def unanswered(self):
        return {}

    def stats(self):
        return self.counts


def snapshot(version, *names):
    return mesh_pb2.WatchUpdate(version=version, changed=[view(name) for name in names])


def view(name):
    return mesh_pb2.DeploymentView(key={"application": "shop", "name": name}, services=["s"])


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
async def serve(controller, tmp_path):
    """Start (again) the controller's server at one address; return its stop."""
    address = f"unix:{tmp_path / 'c.sock'}"
    servers = []

    async def start(at=address):
        server = make_server(TOKEN)
        mesh_pb2_grpc.add_MeshServicer_to_server(controller, server)
        server.add_insecure_port(at)
        await server.start()
        servers.append(server)
        return server

    start.address = address  # type: ignore[attr-defined]
    yield start
    for server in servers:
        await server.stop(0)


@pytest.fixture
def table():
    return Table()


@pytest.fixture
async def feed(serve, table, monkeypatch):
    # What a route looks like is the native table's affair; here its name is enough.
    monkeypatch.setattr(feed_module, "route_of", lambda view, *_: view.key.name)
    feed = TableFeed(
        MeshAddress(controller=serve.address, token=TOKEN),
        NodeSettings(node_id="here", zone="z1"),
        table,
        None,
    )
    yield feed
    await feed.close()


async def test_table_follows_snapshot_and_deltas(feed, table, controller, serve):
    await serve()
    feed.start()
    controller.updates.put_nowait(snapshot(7, "a", "b"))
    await feed.wait_version(7, timeout_s=TIMEOUT_S)
    delta = mesh_pb2.WatchUpdate(
        base_version=7,
        version=8,
        changed=[view("c")],
        removed=[mesh_pb2.DeploymentKey(application="shop", name="a")],
    )
    controller.updates.put_nowait(delta)
    await feed.wait_version(8, timeout_s=TIMEOUT_S)

    assert [(1, ["a", "b"]), (2, ["b", "c"])] == table.applied
    (request,) = controller.requests
    assert (True, "here", "z1") == (request.all, request.node, request.zone)
    assert TOKEN == controller.metadata[0]["pyserve-token-bin"]


async def test_gap_leads_to_a_new_watch_and_leaves_the_table(feed, table, controller, serve):
    await serve()
    feed.start()
    controller.updates.put_nowait(snapshot(7, "a"))
    controller.updates.put_nowait(mesh_pb2.WatchUpdate(base_version=9, version=10))
    await eventually(lambda: len(controller.requests) == 2, TIMEOUT_S)
    assert [(1, ["a"])] == table.applied

    controller.updates.put_nowait(snapshot(11, "b"))

    await feed.wait_version(11, timeout_s=TIMEOUT_S)
    assert (2, ["b"]) == table.applied[-1]


async def test_lost_controller_leaves_the_table_until_another_answers(
    feed, table, controller, serve
):
    server = await serve()
    feed.start()
    controller.updates.put_nowait(snapshot(7, "a"))
    await feed.wait_version(7, timeout_s=TIMEOUT_S)

    await server.stop(0)
    await serve()
    # A new controller counts from the beginning again.
    controller.updates.put_nowait(snapshot(2, "b"))

    await eventually(lambda: len(table.applied) == 2, TIMEOUT_S)
    assert [(1, ["a"]), (2, ["b"])] == table.applied


async def test_stream_that_ends_is_opened_again(feed, table, controller, serve):
    await serve()
    feed.start()
    for version in (1, 2, 3):
        controller.updates.put_nowait(snapshot(version, f"v{version}"))
        controller.updates.put_nowait(None)

    await feed.wait_version(3, timeout_s=TIMEOUT_S)
    assert (3, ["v3"]) == table.applied[-1]


async def test_controller_may_come_later_than_the_feed(feed, table, controller, serve):
    feed.start()
    with pytest.raises(TimeoutError):
        await feed.wait_version(timeout_s=0.05)

    await serve()
    controller.updates.put_nowait(snapshot(1, "a"))

    await feed.wait_version(timeout_s=TIMEOUT_S)
    assert [(1, ["a"])] == table.applied


async def test_feed_of_some_deployments_asks_for_those(serve, controller, table):
    await serve()
    key = DeploymentKey(ApplicationName("shop"), DeploymentName("a"))
    feed = TableFeed(
        MeshAddress(controller=serve.address, token=TOKEN), NodeSettings(node_id=""), table, {key}
    )
    feed.start()
    await eventually(lambda: controller.requests, TIMEOUT_S)
    await feed.close()
    await feed.close()

    (request,) = controller.requests
    assert not request.all
    assert [("shop", "a")] == [(item.application, item.name) for item in request.deployments]


async def test_refused_watch_is_tried_again(feed, table, controller, serve):
    async def refuse(request, context):
        controller.requests.append(request)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        yield

    watch, controller.Watch = controller.Watch, refuse
    server = await serve()
    feed.start()
    await eventually(lambda: controller.requests, TIMEOUT_S)
    await server.stop(0)
    controller.Watch = watch
    await serve()
    controller.updates.put_nowait(snapshot(1, "a"))

    await feed.wait_version(timeout_s=TIMEOUT_S)
    assert [(1, ["a"])] == table.applied


@pytest.mark.parity("G-26")
async def test_calls_are_told_of_for_what_scales_when_they_have_changed(
    feed, table, controller, serve
):
    server = await serve()
    feed.start()
    scales = mesh_pb2.DeploymentView(
        key={"application": "shop", "name": "a"}, services=["s"], scales_with_load=True
    )
    table.counts = {name: {"parked": 2, "offered": 7} for name in ("shop/a", "shop/b")}
    controller.updates.put_nowait(mesh_pb2.WatchUpdate(version=1, changed=[scales, view("b")]))

    await eventually(lambda: controller.loads == [("a", 2, 7)])
    table.counts = {"shop/a": {"parked": 0, "offered": 9}}
    await eventually(lambda: controller.loads[1:] == [("a", 0, 9)])

    # Another controller at the same place has heard of nothing.
    await server.stop(0)
    controller.loads.clear()
    await serve()
    await eventually(lambda: controller.loads == [("a", 0, 9)])


async def test_a_controller_at_another_place_is_told_of_calls(
    serve, table, controller, tmp_path, monkeypatch
):
    async def attend(channel):
        await asyncio.Event().wait()

    monkeypatch.setattr(feed_module, "route_of", lambda view, *_: view.key.name)
    places = [f"unix:{tmp_path / name}" for name in ("one.sock", "two.sock")]
    present = MeshAddress(controller=places[0], token=TOKEN)
    way = Way(locate=lambda: present, beside=attend)
    feed = TableFeed(present, NodeSettings(node_id="here", zone="z1"), table, None, way=way)
    table.counts = {"shop/a": {"parked": 2, "offered": 7}}
    scales = mesh_pb2.DeploymentView(
        key={"application": "shop", "name": "a"}, services=["s"], scales_with_load=True
    )
    view_of_it = mesh_pb2.WatchUpdate(version=1, changed=[scales])

    first = await serve(places[0])
    feed.start()
    controller.updates.put_nowait(view_of_it)
    await eventually(lambda: controller.loads == [("a", 2, 7)])
    controller.loads.clear()
    await serve(places[1])
    present = MeshAddress(controller=places[1], token=TOKEN)
    await first.stop(0)
    controller.updates.put_nowait(view_of_it)
    await eventually(lambda: controller.loads == [("a", 2, 7)])
    await feed.close()


async def test_news_are_gathered_while_tables_take_long(feed, serve, controller, table):
    await serve()
    feed.start()
    controller.updates.put_nowait(snapshot(1, "a"))
    await feed.wait_version(timeout_s=TIMEOUT_S)
    feed._pace.spend(60.0, asyncio.get_running_loop().time())

    for version in range(2, 12):
        names = [f"n{number}" for number in range(version)]
        controller.updates.put_nowait(snapshot(version, *names))
    await feed.wait_version(11, timeout_s=TIMEOUT_S)

    assert [f"n{number}" for number in range(11)] == sorted(
        table.applied[-1][1], key=lambda name: int(name[1:])
    )
    assert len(table.applied) < 11
