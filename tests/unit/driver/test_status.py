"""The values that ``pyserve.status()`` gives, and the text of ``pyserve status``."""

import time

import pytest

from pyserve.cli.status import as_text
from pyserve.driver.status import ApplicationStatus, DeploymentStatus, ProxyStatus, read_status
from pyserve.wire.v1 import control_pb2, mesh_pb2

REPLY = control_pb2.StatusReply(
    version="0.1.0",
    addresses=["127.0.0.1:8000"],
    controller_pid=7,
    applications=[
        control_pb2.ApplicationStatus(
            name="default",
            route_prefix="/",
            state="DEPLOYING",
            message="Echo: one replica starts",
            deployments=[
                control_pb2.DeploymentStatus(
                    name="Echo",
                    state="UPDATING",
                    message="one replica starts",
                    reason="one replica starts",
                    since=1_000_000_000.0,
                    wanted=2,
                    services=["pkg.Echo"],
                    replicas=[
                        control_pb2.ReplicaStatus(
                            replica_id="Echo#1",
                            state="RUNNING",
                            pid=8,
                            node="here",
                            endpoints=mesh_pb2.Endpoints(address="127.0.0.1:5"),
                        ),
                        control_pb2.ReplicaStatus(replica_id="Echo#2", state="STARTING"),
                    ],
                )
            ],
        )
    ],
)


def test_applications_and_deployments_are_found_by_name() -> None:
    deployment = read_status(REPLY).applications["default"].deployments["Echo"]
    assert ("UPDATING", 2, ("pkg.Echo",)) == (
        deployment.status,
        deployment.wanted,
        deployment.services,
    )
    assert ["127.0.0.1:5", ""] == [replica.address for replica in deployment.replicas]


def test_states_are_texts_and_members() -> None:
    application = read_status(REPLY).applications["default"]
    assert ApplicationStatus.DEPLOYING is application.status
    assert ("DEPLOYING", "Echo: one replica starts") == (application.status, application.message)
    deployment = application.deployments["Echo"]
    assert DeploymentStatus.UPDATING is deployment.status
    assert {"RUNNING": 1, "STARTING": 1} == deployment.replica_states


@pytest.mark.parity("G-65")
def test_proxies_are_the_ingresses_by_their_nodes() -> None:
    assert {} == read_status(REPLY).proxies
    reply = control_pb2.StatusReply(
        ingresses=[
            control_pb2.IngressStatus(node=node, state=state)
            for node, state in [
                ("a", "HEALTHY"),
                ("b", "DRAINED"),
                ("b", "STARTING"),
                ("c", "HEALTHY"),
                ("c", "UNHEALTHY"),
                ("c", "DRAINING"),
            ]
        ]
    )
    assert {
        "a": ProxyStatus.HEALTHY,
        "b": ProxyStatus.STARTING,
        "c": ProxyStatus.UNHEALTHY,
    } == read_status(reply).proxies


@pytest.mark.parity("G-65")
def test_the_text_has_the_replicas_that_run_and_since_when_and_why() -> None:
    """The hour depends on where one is, and on nothing else."""
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_000_000_000))
    assert [
        "pyserve 0.1.0, process 7, listening at 127.0.0.1:8000",
        "default (/)  DEPLOYING",
        "  Echo  UPDATING  1/2 replicas  pkg.Echo",
        f"    since {clock}: one replica starts",
        "    Echo#1  RUNNING  pid 8  127.0.0.1:5",
        "    Echo#2  STARTING  pid 0",
    ] == as_text(read_status(REPLY)).splitlines()


def test_the_text_has_a_line_for_each_ingress() -> None:
    reply = control_pb2.StatusReply()
    reply.CopyFrom(REPLY)
    counts = {"connections": 3, "connections_refused": 2}
    busy = reply.ingresses.add(node="a", state="HEALTHY", pid=5, in_flight=4, parked=1)
    busy.counts.update(counts)
    busy.addresses.append("127.0.0.1:8000")
    reply.ingresses.add(node="b", state="UNHEALTHY", pid=6, message="the controller has lost it")
    assert [
        "ingress on a  HEALTHY  pid 5  127.0.0.1:8000: 3 connections (2 refused so far), 4 calls "
        "in flight, 1 of them waiting",
        "ingress on b  UNHEALTHY  pid 6  the controller has lost it",
    ] == as_text(read_status(reply)).splitlines()[1:3]


def test_a_mesh_without_applications_says_so() -> None:
    assert "no applications" in as_text(read_status(control_pb2.StatusReply()))
