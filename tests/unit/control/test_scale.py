"""What a change costs in a mesh of many: bytes for each router, and operations of the controller.

Operations are calls of functions, which a busy machine does not change. The figures in
processor time are those of ``make bench NAME=control-scale``.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from pyserve.config import DeploymentOptions
from pyserve.config.control import LIVENESS_CHECK_PERIOD_S, PING_PERIOD_S, WATCH_COALESCE_S
from pyserve.control.reconcile.decide import next_wakeup, reconcile
from pyserve.control.reconcile.rollout import Reconfiguring
from pyserve.control.recording import Memory, Recorder
from pyserve.control.registry import Registry
from pyserve.control.replicas.members import Members
from pyserve.control.replicas.output import Output
from pyserve.control.replicas.sessions import LivenessMonitor, Session
from pyserve.control.state.applications import Applications
from pyserve.control.state.mesh import MeshState
from pyserve.control.store import MemoryStore
from pyserve.control.views import News
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2

ROOT = Path(__file__).resolve().parents[3]
FEW, MANY = 400, 1600
BYTES_PER_CHANGE_MAX = 1024
# Of each ten: four leave and four come, two say something else of themselves.
CHANGES = 40
# A fifth more than there are; most of them are those of a join.
CALLS_PER_CHANGE_MAX = 1300


class Mesh:
    """A controller's work in a step, on virtual time, for replicas that others have started."""

    def __init__(self, replicas: int, watchers: int = 20) -> None:
        self.now = 100.0
        self.state = MeshState()
        self.applications = Applications()
        specs: dict[str, mesh_pb2.DeploymentSpec] = {}
        self.members = Members(self.state, specs, self.applications, Output(), development=False)
        self.reconfiguring = Reconfiguring()
        self.recorder = Recorder(MemoryStore(), 0.0)
        self.memory = Memory(self.state, self.applications, self.reconfiguring, specs, {})
        self.news = News(self.state)
        self.registry = Registry()
        self.sessions: list[Session] = []
        self.count = 0
        for _ in range(replicas):
            self.join()
        self.step()
        self.watchers = [
            self.registry.watch(None, lambda: None, takes_patches=True) for _ in range(watchers)
        ]
        self.updates()

    def join(self) -> None:
        self.count += 1
        options = DeploymentOptions.of({"request_router_config": {"policy": "shop.own:Policy"}})
        spec = mesh_pb2.DeploymentSpec(
            name="Echo", code={"import_path": "shop:Echo"}, options_json=options.to_json()
        )
        hello = mesh_pb2.Hello(
            replica_id=f"Echo#{self.count:05}",
            application="shop",
            deployment="Echo",
            node=f"node-{self.count % 50}",
            zone="a",
            external=mesh_pb2.External(spec=spec, ingress_deployment="Echo", started_at=self.now),
        )
        session = self.members.join(hello, self.now)
        endpoints = mesh_pb2.Endpoints(
            address=f"10.1.2.{self.count % 250}:40000",
            unix_path=f"/run/pyserve/Echo#{self.count:05}.sock",
        )
        ready = mesh_pb2.Ready(endpoints=endpoints, services=["shop.Echo"])
        self.members.hear(session, mesh_pb2.ReplicaMessage(ready=ready), self.now)
        self.sessions.append(session)

    def change(self, number: int) -> None:
        match number % 10:
            case 0 | 2 | 4 | 6:
                self.members.leave(self.sessions.pop(0), self.now)
            case 1 | 3 | 5 | 7:
                self.join()
            case _:
                said = mesh_pb2.RoutingStats(json=f'{{"models":["m{number}"]}}')
                message = mesh_pb2.ReplicaMessage(routing_stats=said)
                self.members.hear(self.sessions[number], message, self.now)

    def step(self) -> None:
        """Do what the controller does about what has happened."""
        assert [] == reconcile(self.state.deployments, self.state.replicas, self.now)
        assert [] == list(self.reconfiguring.tell(self.state))
        routes = self.applications.routes(self.state)
        self.registry.offer(self.news.since_last(routes, self.applications.infos), self.now)
        self.recorder.record(self.memory, deploys=0, now=self.now)
        assert next_wakeup(self.state.deployments, self.state.replicas, self.now) is None
        self.now += WATCH_COALESCE_S
        self.registry.publish(self.now)

    def updates(self) -> list[list[bytes]]:
        """Return what each router gets."""
        found: list[list[bytes]] = []
        for watcher in self.watchers:
            found.append([])
            while (update := self.registry.take(watcher)) is not None:
                found[-1].append(update)
        return found

    def snapshot(self) -> bytes:
        """Return what a router gets that comes now."""
        update = self.registry.take(self.registry.watch(None, lambda: None, takes_patches=True))
        assert update is not None
        return update


@pytest.mark.parity("S-89")
def test_a_router_gets_less_than_a_kibibyte_for_a_changed_replica() -> None:
    """One by one, where an update is heaviest; a snapshot of all of them is 20 times as much."""
    mesh = Mesh(FEW)
    for number in range(CHANGES):
        mesh.change(number)
        mesh.step()
        for updates in mesh.updates():
            (update,) = updates
            assert len(update) <= BYTES_PER_CHANGE_MAX
    assert len(mesh.snapshot()) > 20 * BYTES_PER_CHANGE_MAX


def calls_of_changes(replicas: int) -> int:
    """Return how many functions are called for changes that are ten to a step."""
    mesh = Mesh(replicas)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # What other tests have left is not counted.
    sys.setprofile(count)
    try:
        for number in range(CHANGES):
            mesh.change(number)
            if number % 10 == 9:
                mesh.step()
                mesh.updates()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@pytest.mark.parity("S-85")
def test_what_a_change_costs_does_not_grow_with_the_mesh() -> None:
    """Four times the replicas: nobody looks at those that have not changed."""
    # Each start reads the variables of the process, of which the tests of all else have any number.
    script = f"from {__name__} import *; print(*map(calls_of_changes, (FEW, MANY)))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={}, check=True)
    few, many = map(int, done.stdout.split())
    assert many < 1.1 * few
    assert many / CHANGES < CALLS_PER_CHANGE_MAX


def test_thousands_are_asked_for_signs_of_life_by_turns_and_each_of_them() -> None:
    mesh = Mesh(MANY)
    liveness = LivenessMonitor()
    asked: list[ReplicaId] = []
    for _ in range(int(PING_PERIOD_S / LIVENESS_CHECK_PERIOD_S)):
        mesh.now += LIVENESS_CHECK_PERIOD_S
        now = [each.id for each in liveness.look(mesh.state, mesh.now)]
        assert len(now) <= MANY * LIVENESS_CHECK_PERIOD_S / PING_PERIOD_S
        for replica_id in now:
            mesh.state.on_heard(replica_id)
        asked += now
    assert sorted(mesh.state.replicas) == sorted(asked)


def test_a_few_are_asked_together() -> None:
    mesh = Mesh(10)
    liveness = LivenessMonitor()
    assert 10 == len(list(liveness.look(mesh.state, mesh.now)))
