"""Deployments of replicas that nobody here started: who is in, which generation serves."""

from __future__ import annotations

import pytest

from pyserve.config import DeploymentOptions
from pyserve.config.control import REJOIN_TIMEOUT_S
from pyserve.control.reconcile.decide import (
    Action,
    ForgetDeployment,
    StopReplica,
    next_wakeup,
    reconcile,
)
from pyserve.control.reconcile.start_limits import Waits
from pyserve.control.replicas.members import Members
from pyserve.control.replicas.output import Output
from pyserve.control.replicas.sessions import Session
from pyserve.control.report import application_statuses
from pyserve.control.state.applications import Applications
from pyserve.control.state.mesh import MeshState
from pyserve.control.state.specs import read_versions
from pyserve.errors import UsageError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import control_pb2, mesh_pb2
from tests.unit.control.world import views_of

SHOP = ApplicationName("shop")
ECHO = DeploymentKey(SHOP, DeploymentName("Echo"))
READY = mesh_pb2.ReplicaMessage(
    ready=mesh_pb2.Ready(endpoints=mesh_pb2.Endpoints(address="a:1"), services=["s"], http=True)
)


class Mesh:
    """The state of a controller and what reconcile does with it, on virtual time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.state = MeshState()
        self.applications = Applications()
        self.specs: dict[str, mesh_pb2.DeploymentSpec] = {}
        self.members = Members(
            self.state, self.specs, self.applications, Output(), development=False
        )
        self.stopped: list[str] = []

    def join(self, code: str, *, started_at: float, name: str = "", ready: bool = True) -> Session:
        """Let a replica join that runs ``code``."""
        spec = mesh_pb2.DeploymentSpec(
            application=SHOP,
            name="Echo",
            code=mesh_pb2.Code(import_path=code, sys_path=[f"/of/{started_at}"]),
            options_json=DeploymentOptions.of({"num_replicas": 3}).to_json(),
        )
        hello = mesh_pb2.Hello(
            replica_id=name,
            application=SHOP,
            deployment="Echo",
            external=mesh_pb2.External(
                spec=spec, ingress_deployment="Echo", route_prefix="/shop", started_at=started_at
            ),
        )
        session = self.members.join(hello, self.now)
        if ready:
            self.members.hear(session, READY, self.now)
        self.settle()
        return session

    def leave(self, session: Session, *, drains: bool = False) -> None:
        if drains:
            draining = mesh_pb2.ReplicaMessage(draining=mesh_pb2.Draining())
            self.members.hear(session, draining, self.now)
        self.members.leave(session, self.now)
        self.settle()

    def settle(self) -> None:
        """Carry out what reconcile wants, as far as it concerns such replicas."""
        while actions := reconcile(self.state.deployments, self.state.replicas, self.now):
            for action in actions:
                self._carry_out(action)
        self.applications.settle(self.state)

    def _carry_out(self, action: Action) -> None:
        match action:
            case StopReplica(replica_id, grace_s):
                self.stopped.append(replica_id)
                self.state.on_stop(replica_id, grace_s=grace_s, now=self.now)
            case ForgetDeployment(key):
                self.state.on_forget(key)
            case _:
                raise AssertionError(f"nobody starts or kills them: {action}")

    def status(self) -> control_pb2.DeploymentStatus | None:
        found = application_statuses(self.state, self.applications, Waits())
        return found[0].deployments[0] if found else None

    def announced(self) -> set[str]:
        routes = self.applications.routes(self.state)
        views = views_of(self.state, routes, self.applications.infos)
        return {each.replica_id for view in views.values() for each in view.replicas}


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


def test_application_is_whoever_has_joined(mesh: Mesh) -> None:
    """Nobody starts the three that its options name; each that joins counts."""
    a = mesh.join("m:Echo", started_at=1)
    b = mesh.join("m:Echo", started_at=2)
    status = mesh.status()

    assert status is not None
    assert ("HEALTHY", 2, 2) == (status.state, status.wanted, len(status.replicas))
    assert {a.replica_id, b.replica_id} == mesh.announced()
    assert {SHOP: "/shop"} == mesh.applications.routes(mesh.state).of_application
    # They are one generation, though their folders differ.
    assert 1 == len({each.version for each in mesh.state.replicas.values()})


def test_application_ends_with_the_last_replica_that_drains(mesh: Mesh) -> None:
    a, b = mesh.join("m:Echo", started_at=1), mesh.join("m:Echo", started_at=2)
    mesh.leave(a, drains=True)
    assert {b.replica_id} == mesh.announced()
    mesh.leave(b, drains=True)

    assert (None, {}) == (mesh.status(), mesh.applications.infos)


def test_calls_wait_for_a_replica_that_dies_and_starts_anew(mesh: Mesh) -> None:
    mesh.leave(mesh.join("m:Echo", started_at=1))
    status = mesh.status()
    assert status is not None
    assert ("UNHEALTHY", "its replicas have gone without a word") == (status.state, status.message)
    routes = mesh.applications.routes(mesh.state)
    assert ECHO in views_of(mesh.state, routes, mesh.applications.infos)
    mesh.now += REJOIN_TIMEOUT_S - 1
    again = mesh.join("m:Echo", started_at=109)

    assert {again.replica_id} == mesh.announced()
    mesh.now += 60
    mesh.settle()
    assert {again.replica_id} == mesh.announced()


def test_application_whose_replicas_are_dead_ends_in_time(mesh: Mesh) -> None:
    mesh.leave(mesh.join("m:Echo", started_at=1))
    due = next_wakeup(mesh.state.deployments, mesh.state.replicas, mesh.now)
    assert mesh.now + REJOIN_TIMEOUT_S == due
    mesh.now = due
    mesh.settle()

    assert mesh.status() is None


def test_older_generation_drains_when_the_newer_has_as_many(mesh: Mesh) -> None:
    old = [mesh.join("m:Echo", started_at=at) for at in (1, 2)]
    mesh.join("m:Echo2", started_at=10)
    assert [] == mesh.stopped
    mesh.join("m:Echo2", started_at=11, ready=False)
    assert [] == mesh.stopped, "one of them does not serve yet"
    newest = mesh.join("m:Echo2", started_at=12)

    assert {each.replica_id for each in old} == set(mesh.stopped)
    assert newest.replica_id in mesh.announced()
    assert not {each.replica_id for each in old} & mesh.announced()
    for each in old:
        mesh.leave(each)
    status = mesh.status()
    assert status is not None
    assert ("HEALTHY", 3) == (status.state, status.wanted)


def test_restart_of_an_older_replica_does_not_make_its_code_new(mesh: Mesh) -> None:
    """Its generation began first, as long as one of its replicas is there."""
    mesh.join("m:Echo", started_at=1)
    crashed = mesh.join("m:Echo", started_at=2)
    new = mesh.join("m:Echo2", started_at=10)
    mesh.leave(crashed)
    assert len(mesh.stopped) == 1
    mesh.join("m:Echo", started_at=20)

    target = mesh.state.deployments[ECHO].target
    assert target is not None
    assert target.id == mesh.state.replicas[new.replica_id].version


def test_order_of_joins_after_a_restart_of_the_controller_means_nothing(mesh: Mesh) -> None:
    """Generations are told by the starts of their processes, which replicas remember."""
    new = mesh.join("m:Echo2", started_at=10, name="Echo#new")
    mesh.join("m:Echo", started_at=1, name="Echo#old")

    assert ["Echo#old"] == mesh.stopped
    assert {new.replica_id} == mesh.announced()


def test_older_code_counts_as_new_when_it_comes_back_alone(mesh: Mesh) -> None:
    """A step back is a new generation too."""
    first = mesh.join("m:Echo", started_at=1)
    second = mesh.join("m:Echo2", started_at=10)
    mesh.leave(first)
    back = mesh.join("m:Echo", started_at=20)

    assert {back.replica_id} == mesh.announced()
    assert [first.replica_id, second.replica_id] == mesh.stopped


def test_replica_of_an_application_that_the_mesh_has_deployed_is_refused(mesh: Mesh) -> None:
    spec = mesh_pb2.DeploymentSpec(name="Echo", options_json=DeploymentOptions().to_json())
    versions = read_versions(SHOP, [spec], 1)
    request = control_pb2.DeployRequest(application=SHOP, ingress_deployment="Echo")
    info = mesh.applications.check(SHOP, request, mesh.state)
    mesh.applications.admit(SHOP, info, mesh.state)
    mesh.state.on_deploy(SHOP, {key: version for key, (version, _) in versions.items()})

    with pytest.raises(UsageError, match="was deployed to this mesh, which starts its replicas"):
        mesh.join("m:Echo", started_at=1)
    assert {} == mesh.state.replicas


def test_deploy_of_an_application_whose_replicas_others_start_is_refused(mesh: Mesh) -> None:
    mesh.join("m:Echo", started_at=1)
    request = control_pb2.DeployRequest(application=SHOP, ingress_deployment="Echo")

    with pytest.raises(UsageError, match="consists of replicas that others have started"):
        mesh.applications.check(SHOP, request, mesh.state)


def test_replica_that_says_again_that_it_stops_has_not_been_told_to(mesh: Mesh) -> None:
    """As one does that joins once more; so its end is told with why it came to that."""
    session = mesh.join("code:v1", started_at=1)
    draining = mesh_pb2.ReplicaMessage(draining=mesh_pb2.Draining())

    mesh.members.hear(session, draining, mesh.now)
    mesh.members.hear(session, draining, mesh.now)

    assert mesh.state.replicas[session.replica_id].stops_itself


def test_replica_that_is_told_to_stop_does_not_stop_by_itself(mesh: Mesh) -> None:
    session = mesh.join("code:v1", started_at=1)
    mesh.state.on_stop(session.replica_id, grace_s=1.0, now=mesh.now)

    mesh.members.hear(session, mesh_pb2.ReplicaMessage(draining=mesh_pb2.Draining()), mesh.now)

    assert not mesh.state.replicas[session.replica_id].stops_itself
