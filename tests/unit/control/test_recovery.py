"""Controllers one after another on one store, with replicas by script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.admission import DeployWatch
from pyserve.control.controller import Controller
from pyserve.control.registry import Watcher
from pyserve.control.replicas.launching import Events, LastingLauncher, ReplicaOrder
from pyserve.control.replicas.sessions import Session
from pyserve.control.runs import Runs
from pyserve.control.state.specs import Run
from pyserve.control.store import Changes, MemoryStore
from pyserve.errors import MeshError
from pyserve.types import ReplicaId
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, mesh_pb2
from tests.support.launching import ScriptedLauncher
from tests.support.waiting import eventually

pytestmark = pytest.mark.parity("G-66")


class Machine(ScriptedLauncher):
    """A launcher for all controllers: processes go on until somebody kills them."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[ReplicaOrder] = []
        self.alive: set[ReplicaId] = set()
        self.strays_ended = 0

    async def start(self, order: ReplicaOrder) -> int:
        self.orders.append(order)
        self.alive.add(order.replica_id)
        return len(self.orders)

    def watch(self) -> Events:
        """Tell the last controller alone, as those before it are killed."""
        self.events = Events()
        return self.events

    def memo(self, replica_id: ReplicaId) -> str:
        return f"memo of {replica_id}"

    def adopt(self, order: ReplicaOrder, memo: str) -> int | None:
        assert memo in ("", self.memo(order.replica_id))
        return 7 if order.replica_id in self.alive else None

    def count_strays(self) -> int:
        return len(self.alive)

    def end_strays(self) -> None:
        self.strays_ended += 1

    def let_go(self) -> None: ...

    def end(self, replica_id: ReplicaId, summary: str) -> None:
        super().end(replica_id, summary)
        self.alive.discard(replica_id)


class FailingStore(MemoryStore):
    """Keeps things, unless its disk is full."""

    is_full = False
    writes = 0

    def write(self, changes: Changes) -> None:
        if self.is_full:
            raise MeshError("the disk is full; free some space")
        self.writes += 1
        super().write(changes)


class Mesh:
    """One controller after another."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.store = FailingStore()
        self.controller = Controller(self.machine, development=True, store=self.store)
        self.sessions: dict[ReplicaId, Session] = {}

    def deploy(self, **options: Any) -> DeployWatch:
        code = mesh_pb2.Code(import_path="a:Echo", fingerprint=b"same")
        options_json = DeploymentOptions.of(options).to_json()
        spec = mesh_pb2.DeploymentSpec(name="Echo", code=code, options_json=options_json)
        return self.controller.deploy(
            control_pb2.DeployRequest(
                application="shop", deployments=[spec], run=control_pb2.Run(id="r", pid=7)
            )
        )

    async def serve(self, count: int) -> None:
        watch = self.deploy(num_replicas=count)
        await eventually(lambda: len(self.machine.orders) == count)
        for order in self.machine.orders:
            self.join(order)
        assert "deployed" == await outcome(watch)

    def join(self, order: ReplicaOrder) -> Session:
        hello = mesh_pb2.Hello(
            application=order.key.application,
            deployment=order.key.deployment,
            replica_id=order.replica_id,
            version=version(),
            node="here",
        )
        session = self.sessions[order.replica_id] = self.controller.join(hello)
        ready = mesh_pb2.Ready(
            services=["s"], endpoints=mesh_pb2.Endpoints(address=f"h:{order.replica_id}")
        )
        self.controller.hear(session, mesh_pb2.ReplicaMessage(ready=ready))
        return session

    def restart(self) -> None:
        """The controller is killed, and the next one begins."""
        self.controller.recovery._recorder.close()
        self.controller = Controller(self.machine, development=True, store=self.store)
        self.controller.resume()

    def watch(self) -> Watcher:
        return self.controller.registry.watch(None, lambda: None)

    def replicas_in(self, watcher: Watcher) -> list[str] | None:
        """Return what a router is told next, ``None`` if nothing."""
        data = self.controller.registry.take(watcher)
        if data is None:
            return None
        (view,) = mesh_pb2.WatchUpdate.FromString(data).changed
        return sorted(each.replica_id for each in view.replicas)

    def scaling(self) -> control_pb2.Scaling:
        (application,) = self.controller.status().applications
        return application.deployments[0].scaling

    def state(self) -> str:
        (application,) = self.controller.status().applications
        return application.deployments[0].state


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    mesh = Mesh()
    mesh.controller.resume()
    yield mesh
    mesh.machine.alive.clear()
    await mesh.controller.close()


async def outcome(watch: DeployWatch) -> str:
    async with asyncio.timeout(30):
        last = [event async for event in watch.events()][-1]
    return last.failed.summary or str(last.WhichOneof("kind"))


async def test_a_new_controller_takes_those_that_live_for_what_they_are(mesh: Mesh) -> None:
    assert isinstance(mesh.machine, LastingLauncher)
    await mesh.serve(2)
    before = {order.replica_id for order in mesh.machine.orders}

    mesh.restart()
    router = mesh.watch()
    first, second = mesh.machine.orders
    mesh.join(first)
    await asyncio.sleep(0)
    assert mesh.replicas_in(router) is None, "half of the replicas is worse than what it has"
    mesh.join(second)

    await eventually(lambda: mesh.controller.registry.held is False)
    assert sorted(before) == mesh.replicas_in(router)
    assert "HEALTHY" == mesh.state()
    assert 2 == len(mesh.machine.orders)
    assert 2 == mesh.machine.strays_ended


async def test_a_new_controller_knows_why_there_are_so_many(mesh: Mesh) -> None:
    watch = mesh.deploy(autoscaling_config={"max_replicas": 3, "target_ongoing_requests": 1})
    await eventually(lambda: len(mesh.machine.orders) == 1)
    mesh.join(mesh.machine.orders[0])
    assert "deployed" == await outcome(watch)
    key = mesh_pb2.DeploymentKey(application="shop", name="Echo")
    load = mesh_pb2.DeploymentLoad(key=key, parked=9, offered=9)
    mesh.controller.autoscaling.on_router("one", mesh_pb2.RouterLoad(deployments=[load]))
    await eventually(lambda: mesh.scaling().target == 3, 30)
    for order in mesh.machine.orders[1:]:
        mesh.join(order)
    before = mesh.scaling()

    mesh.restart()
    for order in mesh.machine.orders:
        mesh.join(order)
    await eventually(lambda: mesh.controller.registry.held is False)

    assert "as deployed" != before.reason
    assert (3, before.reason) == (mesh.scaling().target, mesh.scaling().reason)
    assert before.since == pytest.approx(mesh.scaling().since, abs=0.01)


async def test_an_empty_state_beside_replicas_that_live_is_no_new_mesh(mesh: Mesh) -> None:
    await mesh.serve(2)
    mesh.controller.recovery._recorder.close()
    kept, mesh.store = mesh.store, FailingStore()
    ended = mesh.machine.strays_ended

    with pytest.raises(MeshError, match=r"empty, but replicas of it run \(2\), and go on"):
        mesh.restart()

    assert (ended, 2) == (mesh.machine.strays_ended, len(mesh.machine.alive))
    assert {} == mesh.store.load()
    await mesh.controller.close(goes_on=True)
    mesh.store = kept
    mesh.restart()
    for order in mesh.machine.orders:
        mesh.join(order)
    await eventually(lambda: mesh.state() == "HEALTHY")
    assert 2 == len(mesh.machine.orders)


async def test_one_that_died_meanwhile_is_replaced_once_the_others_are_back(mesh: Mesh) -> None:
    await mesh.serve(2)
    first, second = mesh.machine.orders
    mesh.machine.alive.remove(second.replica_id)

    mesh.restart()
    mesh.join(first)

    await eventually(lambda: len(mesh.machine.orders) == 3)
    assert second.replica_id not in mesh.machine.alive
    assert 2 == len(mesh.machine.alive)


async def test_one_that_was_wanted_and_never_begun_is_started(mesh: Mesh) -> None:
    mesh.deploy(num_replicas=1)
    await asyncio.sleep(0)  # The step is written; the launcher has not been asked.
    assert [] == mesh.machine.orders
    wanted = {key[1] for key in mesh.store.load() if key[0].value == "replicas"}
    assert 1 == len(wanted)
    for task in mesh.controller._tasks:
        task.cancel()

    mesh.restart()

    await eventually(lambda: len(mesh.machine.orders) == 1)
    assert wanted.isdisjoint(mesh.machine.alive)


async def test_what_is_deleted_stays_so(mesh: Mesh) -> None:
    await mesh.serve(1)
    deleting = asyncio.create_task(mesh.controller.delete("shop"))
    (order,) = mesh.machine.orders
    session = mesh.sessions[order.replica_id]
    kinds = []
    async with asyncio.timeout(30):
        while "drain" not in kinds:
            command = await session.next()
            assert command is not None
            kinds.append(command.WhichOneof("kind"))
    deleting.cancel()

    mesh.restart()
    again = mesh.join(order)
    kinds = []
    async with asyncio.timeout(30):
        while "drain" not in kinds:  # It need not have heard it.
            command = await again.next()
            assert command is not None
            kinds.append(command.WhichOneof("kind"))
    mesh.machine.end(order.replica_id, "ended with exit code 0")

    await eventually(lambda: not mesh.controller.state.deployments)
    assert {"mesh"} == {table.value for table, _ in mesh.store.load()}


async def test_an_end_of_the_mesh_may_keep_its_applications(mesh: Mesh) -> None:
    await mesh.serve(1)
    (order,) = mesh.machine.orders
    mesh.controller.recovery.keep_applications()
    draining = asyncio.create_task(mesh.controller.drain(0.0))
    await eventually(lambda: mesh.controller.state.replicas[order.replica_id].kill_at is not None)
    mesh.machine.end(order.replica_id, "ended with exit code 0")
    await asyncio.wait_for(draining, 30)

    mesh.restart()

    await eventually(lambda: len(mesh.machine.orders) == 2)
    assert order.replica_id not in mesh.controller.state.replicas


async def test_a_deploy_that_cannot_be_kept_is_refused_and_changes_nothing(mesh: Mesh) -> None:
    await mesh.serve(1)
    mesh.store.is_full = True
    before = mesh.store.load()

    with pytest.raises(MeshError, match="the disk is full; free some space"):
        mesh.deploy(num_replicas=3)

    assert "HEALTHY" == mesh.state()
    assert before == mesh.store.load()
    assert 1 == len(mesh.machine.orders)


async def test_what_could_not_be_written_is_said_and_written_later(mesh: Mesh) -> None:
    await mesh.serve(1)
    mesh.store.is_full = True
    (order,) = mesh.machine.orders
    mesh.machine.stop(order.replica_id, 0)
    await eventually(lambda: len(mesh.machine.orders) == 2)
    assert [
        "the disk is full; free some space. What runs goes on; no deploy is taken"
    ] == mesh.controller.status().notices

    mesh.store.is_full = False

    await eventually(lambda: not mesh.controller.status().notices)
    mesh.restart()
    assert {mesh.machine.orders[1].replica_id} == mesh.controller.state.replicas.keys()


def since(mesh: Mesh) -> tuple[float, float]:
    (application,) = mesh.controller.status().applications
    return application.since, application.deployments[0].since


async def test_since_when_it_serves_is_told_by_the_next_controller_too(mesh: Mesh) -> None:
    await mesh.serve(2)
    await eventually(lambda: mesh.state() == "HEALTHY")
    before = since(mesh)
    assert 0.0 not in before

    mesh.restart()

    first, second = mesh.machine.orders
    mesh.join(first)
    await mesh.controller.next_step()
    (application,) = mesh.controller.status().applications
    (deployment,) = application.deployments
    assert ("RUNNING", "HEALTHY") == (application.state, deployment.state), "nobody has gone yet"
    assert "waits for its replicas to join again" in deployment.reason
    assert before == since(mesh)
    mesh.join(second)
    await eventually(lambda: not mesh.controller.registry.held)
    assert ("HEALTHY", before) == (mesh.state(), since(mesh))


async def test_a_replica_that_drained_is_told_what_is_left_of_its_grace(mesh: Mesh) -> None:
    await mesh.serve(1)
    deleting = asyncio.create_task(mesh.controller.delete("shop"))
    (order,) = mesh.machine.orders
    await eventually(lambda: mesh.controller.state.replicas[order.replica_id].kill_at is not None)
    deleting.cancel()
    mesh.restart()
    replica = mesh.controller.state.replicas[order.replica_id]
    assert replica.kill_at is not None
    replica.kill_at -= 15.0

    again = mesh.join(order)

    async with asyncio.timeout(30):
        while (command := await again.next()) is None or command.WhichOneof("kind") != "drain":
            pass
    assert 1.0 < command.drain.grace_s <= 5.0


async def test_steps_that_change_nothing_write_nothing(mesh: Mesh) -> None:
    await mesh.serve(2)
    await eventually(lambda: mesh.state() == "HEALTHY")
    await mesh.controller.next_step()
    before = mesh.store.writes

    for _ in range(3):
        mesh.controller._changed()
        await mesh.controller.next_step()

    assert before == mesh.store.writes


async def test_a_cordoned_node_stays_so(mesh: Mesh) -> None:
    await mesh.serve(1)
    (order,) = mesh.machine.orders
    await mesh.controller.cordon("node:here", undo=False)

    mesh.restart()

    session = mesh.join(order)
    assert mesh.controller.state.replicas[session.replica_id].node_cordoned
    assert any("here" in notice for notice in mesh.controller.status().notices)


async def test_what_a_newer_replica_says_besides_is_survived(mesh: Mesh) -> None:
    await mesh.serve(1)
    (session,) = mesh.sessions.values()
    of_no_kind_that_we_know = mesh_pb2.ReplicaMessage.FromString(b"\xfa\xf0\x04\x03new")

    mesh.controller.hear(session, of_no_kind_that_we_know)

    await eventually(lambda: mesh.state() == "HEALTHY")


async def test_a_run_that_does_not_come_back_is_lost() -> None:
    runs = Runs(return_timeout_s=0.0)
    lost: list[Run] = []
    runs.on_lost = lost.append
    gone, here = Run("gone", 1), Run("here", 2)
    runs.follow(here)
    for run in (gone, here):
        runs.expect(run)
    await eventually(lambda: lost)
    assert [gone] == lost
