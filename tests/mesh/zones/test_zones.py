"""Machines in two zones, as network namespaces that are milliseconds apart."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.zones.journals import calls, share_that_stays
from benchmarks.zones.mesh import Mesh, running
from benchmarks.zones.network import Host, missing, network
from tests.support.waiting import wait_until

_REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_REASON is not None, reason=str(_REASON)),
]
ZONES = {"east": ("control", "east-1"), "west": ("west-1",)}
REPLICAS = {"east-1": 1, "west-1": 1}
ONE_WAY_MS = 1.0
TIMEOUT_S = 60.0
CALLS = 40


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with network(ZONES, ONE_WAY_MS) as hosts, running(hosts, REPLICAS, {}) as started:
        yield started


def host(mesh: Mesh, name: str) -> Host:
    (found,) = [each for each in mesh.hosts if each.name == name]
    return found


def call(host: Host) -> None:
    """Make calls at the ingress of a host, all of which have to be answered."""
    subprocess.run(
        host.command([sys.executable, "-m", "tests.mesh.zones.caller", host.zone, str(CALLS)]),
        check=True,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parity("S-52")
def test_calls_of_each_host_stay_in_its_zone(mesh: Mesh) -> None:
    begin_ns = time.monotonic_ns()
    for name in REPLICAS:
        call(host(mesh, name))
    counted = calls(mesh.journals, begin_ns, time.monotonic_ns())
    assert CALLS * len(REPLICAS) == counted.total()
    assert share_that_stays(counted) >= 0.95, counted


@pytest.mark.long
def test_a_host_that_cannot_reach_the_controller_goes_on(mesh: Mesh) -> None:
    """Its ingress and its replica serve; both are members again when it can, without a restart."""
    west, control = host(mesh, "west-1"), host(mesh, "control")
    replicas = mesh.running()
    (far,) = [each.pid for each in mesh.replicas["west-1"]]
    west.lose(control.address)
    control.lose(west.address)
    wait_until(lambda: replicas - {far} == mesh.running(), TIMEOUT_S, "the controller notices")
    for name in REPLICAS:
        call(host(mesh, name))
    west.find(control.address)
    control.find(west.address)
    wait_until(lambda: replicas == mesh.running(), TIMEOUT_S, "the replica is a member again")
    for name in REPLICAS:
        call(host(mesh, name))


def test_a_zone_without_replicas_is_served_by_the_other(mesh: Mesh) -> None:
    (near,) = mesh.replicas["west-1"]
    near.kill()
    near.wait()
    wait_until(lambda: near.pid not in mesh.running(), TIMEOUT_S, "the controller notices")
    begin_ns = time.monotonic_ns()
    call(host(mesh, "west-1"))
    counted = calls(mesh.journals, begin_ns, time.monotonic_ns())
    assert {("west", "east"): CALLS} == dict(counted)


def test_nothing_is_left_of_a_network() -> None:
    with network(ZONES, ONE_WAY_MS) as hosts:
        names = {each.namespace for each in hosts}
        assert names <= _namespaces()
    assert not names & _namespaces()


def _namespaces() -> set[str]:
    return {each.name for each in Path("/run/netns").iterdir()}
