"""How the controller handles the reports of its launcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pyserve.config.capabilities import Capabilities
from pyserve.config.control import KILL_MARGIN_S
from pyserve.control.replicas import starting
from pyserve.errors import UsageError
from pyserve.launch import Ended, Event, Placed, ReplicaOrder, Waiting
from pyserve.types import ReplicaId
from pyserve.version import version
from pyserve.wire.v1 import mesh_pb2
from tests.support.waiting import eventually
from tests.unit.control.test_reconfiguring import Mesh, Processes, Replica, outcome


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    mesh = Mesh()
    yield mesh
    await mesh.controller.close()


async def test_what_replicas_wait_for_is_the_state_of_their_deployment(mesh: Mesh) -> None:
    watch = mesh.deploy(1)
    await eventually(lambda: len(mesh.processes.orders) == 2)
    one, other = (order.replica_id for order in mesh.processes.orders)

    mesh.processes.events.put(Waiting(one, "a node with 4 CPUs"))
    await eventually(lambda: "; a replica waits for a node with 4 CPUs" in mesh.status()[1])
    mesh.processes.events.put(Waiting(other, "a node with 4 CPUs"))
    await eventually(lambda: "; 2 replicas wait for a node with 4 CPUs" in mesh.status()[1])
    mesh.processes.events.put(Waiting(one, ""))
    await eventually(lambda: "; a replica waits for a node" in mesh.status()[1])
    await mesh.bring_up()

    assert "deployed" == await outcome(watch)
    assert ("HEALTHY", "") == mesh.status(), "it runs, whatever was said before"


async def test_one_that_waits_for_too_long_fails_with_what_it_waited_for(mesh: Mesh) -> None:
    watch = mesh.deploy(1, count=1, startup_timeout_s=1.0, max_constructor_retry_count=1)
    await eventually(lambda: mesh.processes.orders)

    mesh.processes.events.put(Waiting(mesh.processes.orders[0].replica_id, "a larger machine"))

    assert "not ready after 1 s; it waits for a larger machine, or " in await outcome(watch)


async def test_progress_tells_it_once(mesh: Mesh) -> None:
    watch = mesh.deploy(1)
    await eventually(lambda: len(mesh.processes.orders) == 2)
    replica_id = mesh.processes.orders[0].replica_id

    for _ in range(3):
        mesh.processes.events.put(Waiting(replica_id, "an image"))
    await eventually(lambda: "an image" in mesh.status()[1])
    await mesh.bring_up()

    async with asyncio.timeout(30):
        notes = [event.progress.note async for event in watch.events()]
    assert 1 == notes.count(f"replica {replica_id} waits for an image")


async def test_the_zone_that_its_launcher_knows_is_told_to_a_replica(mesh: Mesh) -> None:
    mesh.deploy(1)
    await eventually(lambda: len(mesh.processes.orders) == 2)
    placed, other = mesh.processes.orders

    mesh.processes.events.put(Placed(placed.replica_id, "zone-a"))
    await eventually(
        lambda: "zone-a" == mesh.controller.state.replicas[placed.replica_id].place.zone
    )

    zones = [
        (await Replica(mesh.controller, each.key, each.replica_id).next("assign")).zone
        for each in (placed, other)
    ]
    assert ["zone-a", ""] == zones


async def test_a_replica_that_names_its_zone_knows_better(mesh: Mesh) -> None:
    mesh.deploy(1)
    await eventually(lambda: len(mesh.processes.orders) == 2)
    order = mesh.processes.orders[0]
    hello = mesh_pb2.Hello(
        application=order.key.application,
        deployment=order.key.deployment,
        replica_id=order.replica_id,
        version=version(),
        zone="zone-b",
    )

    mesh.controller.join(hello)
    mesh.processes.events.put(Placed(order.replica_id, "zone-a"))
    mesh.processes.events.put(Waiting(order.replica_id, "its turn"))
    replica = mesh.controller.state.replicas[order.replica_id]
    await eventually(lambda: "its turn" == replica.waits_for)

    assert "zone-b" == replica.place.zone


class Interrupted(Processes):
    """Its first watch breaks before anything has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.watches = 0

    def watch(self) -> Any:
        self.watches += 1
        return self._broken() if self.watches == 1 else super().watch()

    async def _broken(self) -> AsyncIterator[Event]:
        raise ConnectionError("the engine is gone")
        yield


async def test_a_watch_that_breaks_is_begun_again_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(starting, "_WATCH_AGAIN_S", 0.01)
    monkeypatch.setattr("tests.unit.control.test_reconfiguring.Processes", Interrupted)
    mesh = Mesh()
    watch = mesh.deploy(1, count=1, max_constructor_retry_count=1)
    await eventually(lambda: mesh.processes.orders)

    mesh.processes.events.put(Ended(mesh.processes.orders[0].replica_id, "was evicted"))

    assert "was evicted" in await outcome(watch)
    assert any("has failed" in each for each in caplog.messages)
    await mesh.controller.close()


async def test_the_end_of_a_replica_that_nobody_knows_is_no_matter(mesh: Mesh) -> None:
    watch = mesh.deploy(1)
    await mesh.bring_up()

    mesh.processes.end(ReplicaId("Echo#zzzzz"), "was evicted")

    assert "deployed" == await outcome(watch)


class Endless(Processes):
    """Does not end its watch with itself."""

    async def close(self) -> None: ...


async def test_a_watch_that_does_not_end_holds_up_no_close(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(starting, "_LAST_EVENTS_TIMEOUT_S", 0.05)
    monkeypatch.setattr("tests.unit.control.test_reconfiguring.Processes", Endless)

    async with asyncio.timeout(30):
        await Mesh().controller.close()

    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "the watch of launcher scripted does not end" in record.message


class Asked(Processes):
    """Remembers what was stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[tuple[ReplicaId, float]] = []

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        self.stopped.append((replica_id, grace_s))


async def test_one_whose_stream_is_broken_is_told_to_end_by_its_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.unit.control.test_reconfiguring.Processes", Asked)
    mesh = Mesh()
    launcher = mesh.processes
    assert isinstance(launcher, Asked)
    mesh.deploy(1, count=2, graceful_shutdown_timeout_s=3.0)
    await mesh.bring_up()
    await eventually(lambda: "HEALTHY" == mesh.status()[0])
    broken, other = mesh.replicas
    mesh.controller.leave(broken.session)

    deleting = asyncio.create_task(mesh.controller.delete("shop"))

    await other.next("drain")
    told = [(broken.session.replica_id, 3.0 + KILL_MARGIN_S)]
    assert told == launcher.stopped, "it may have calls in flight, and hooks after them"
    deleting.cancel()
    await mesh.controller.close()


class Plain(Processes):
    """Can start replicas, and no more."""

    capabilities = Capabilities(needless={"max_replicas_per_node": "there is one machine"})


async def test_a_deploy_is_refused_by_the_names_of_launcher_and_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.unit.control.test_reconfiguring.Processes", Plain)
    mesh = Mesh()

    wanted = r"the launcher 'scripted' of this mesh cannot start 'Echo' of 'shop': .*env_vars"
    with pytest.raises(UsageError, match=wanted):
        mesh.deploy(1, env_vars={"A": "1"})
    await asyncio.sleep(0)

    assert [] == mesh.processes.orders
    assert [] == list(mesh.controller.status().applications)
    await mesh.controller.close()


async def test_what_a_launcher_passes_over_is_told_to_whoever_deploys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.unit.control.test_reconfiguring.Processes", Plain)
    mesh = Mesh()
    watch = mesh.deploy(1, max_replicas_per_node=1)
    await mesh.bring_up()

    async with asyncio.timeout(30):
        told = [event.notice async for event in watch.events() if event.notice]

    assert [
        "warning: deployment 'Echo' of 'shop': max_replicas_per_node has no effect: there is one "
        "machine; see docs/reference/deployment-options.md"
    ] == told
    await mesh.controller.close()


def test_an_order_says_what_a_replica_has_to_be_told(mesh_order: ReplicaOrder) -> None:
    assert [
        *("--controller", "unix:/c"),
        *("--replica-id", mesh_order.replica_id),
        *("--application", "shop", "--deployment", "Echo"),
    ] == mesh_order.arguments("unix:/c")


@pytest.fixture
async def mesh_order(mesh: Mesh) -> ReplicaOrder:
    mesh.deploy(1, count=1)
    await eventually(lambda: mesh.processes.orders)
    return mesh.processes.orders[0]
