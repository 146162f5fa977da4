"""``pyserve status --proxy``: the ingress as a process, and what its router did."""

from __future__ import annotations

import json

import pytest

from pyserve.cli.status import proxy_report, proxy_text
from pyserve.config.ingress import IngressSettings
from pyserve.driver.status import MeshStatus, read_status
from pyserve.gateway.ingress import ingress_status, limits_of
from pyserve.wire.v1 import control_pb2


def table(offered: int) -> dict[str, dict[str, object]]:
    """Return what the native table says."""
    return {
        "shop/Cart": {
            "in_flight": {"Cart#1": 2, "Cart#2": 1},
            "in_flight_total": 3,
            "parked": 4,
            "waiting_for_model": 1,
            "descriptor_problems": [],
            "offered": offered,
            "completed": 90,
            "failed": 5,
            "connect_failures": 1,
            "refused_by_queue": 7,
            "expired": 6,
            "retries": 8,
            "hedges": 9,
            "ejections": 11,
        }
    }


def mesh(offered: int = 100, uptime_s: float = 60.0) -> MeshStatus:
    ingress = ingress_status(
        table(offered),
        counts={
            "connections": 3,
            "connections_max": 20,
            "connections_refused": 2,
            "calls": offered,
            "http_2xx": 33,
        },
        limits=limits_of(IngressSettings(io_threads=2, connections_max=20)),
        in_flight=3,
        node="here",
        state="HEALTHY",
        uptime_s=uptime_s,
    )
    deployment = control_pb2.DeploymentStatus(
        name="Cart",
        state="HEALTHY",
        replicas=[
            control_pb2.ReplicaStatus(replica_id="Cart#1", state="RUNNING"),
            control_pb2.ReplicaStatus(replica_id="Cart#3", state="SILENT"),
        ],
    )
    application = control_pb2.ApplicationStatus(
        name="shop", state="RUNNING", deployments=[deployment]
    )
    reply = control_pb2.StatusReply(
        version="0.1.0",
        controller_pid=7,
        addresses=["127.0.0.1:8000"],
        applications=[application],
        ingress=ingress,
        ingresses=[ingress],
    )
    return read_status(reply)


@pytest.mark.parity("S-72")
def test_the_process_is_shown_with_its_limits_and_rates() -> None:
    report = json.loads(json.dumps(proxy_report(mesh(100, 60.0), mesh(150, 62.0))))

    assert ("0.1.0", 7, "HEALTHY", 62.0) == (
        report["version"],
        report["pid"],
        report["status"],
        report["uptime_s"],
    )
    assert 25.0 == report["calls_per_second"]
    assert (3, 4, 3) == (report["in_flight"], report["parked"], report["counts"]["connections"])
    assert 20 == report["limits"]["connections_max"]
    assert "server_timeout_s" not in report["limits"], "there is none"


@pytest.mark.parity("S-72")
def test_deployments_are_shown_as_backends_and_replicas_as_servers() -> None:
    cart = proxy_report(mesh(100, 60.0), mesh(150, 62.0))["deployments"]["shop/Cart"]

    assert ("HEALTHY", 3, 4, 25.0) == (
        cart["status"],
        cart["in_flight"],
        cart["parked"],
        cart["calls_per_second"],
    )
    assert (150, 7, 8, 11) == tuple(
        cart["counts"][name] for name in ("offered", "refused_by_queue", "retries", "ejections")
    )
    assert "parked" not in cart["counts"], "that is no counter"
    assert {"Cart#1": 2, "Cart#3": 0} == {
        name: each["in_flight"] for name, each in cart["replicas"].items()
    }
    assert "SILENT" == cart["replicas"]["Cart#3"]["state"]


def test_people_read_lines() -> None:
    lines = proxy_text(proxy_report(mesh(100, 60.0), mesh(150, 62.0))).splitlines()

    assert "ingress of here: HEALTHY, pyserve 0.1.0, process 7, up 62 s" == lines[0]
    assert "listening at 127.0.0.1:8000, 2 I/O threads" == lines[1]
    assert "connections: 3 of 20, 2 refused so far" == lines[2]
    assert "calls: 150 so far, 25/s, 3 in flight, 4 waiting" == lines[3]
    assert lines[4].startswith("answers of plain HTTP: 33 × 2xx, 0 × 3xx")
    head, cart, first, second = (line.split() for line in lines[-4:])
    assert ["state", "in", "flight", "waiting", "calls/s"] == head[:5]
    assert ["calls", "done", "unanswered"] == head[5:8]
    assert ["shop/Cart", "HEALTHY", "3", "4", "25", "150", "90", "6", "7", "6"] == cart[:10]
    assert (["Cart#1", "RUNNING", "2"], ["Cart#3", "SILENT", "0"]) == (first, second)


def test_an_ingress_that_was_started_anew_meanwhile_has_no_rate() -> None:
    assert 0.0 == proxy_report(mesh(100, 60.0), mesh(10, 1.0))["calls_per_second"]


def test_a_deployment_that_nobody_has_called_is_shown() -> None:
    found = mesh()
    report = proxy_report(found, read_status(control_pb2.StatusReply()))
    assert {} == report["deployments"]
    assert "this mesh has no ingress" in proxy_text(report)
