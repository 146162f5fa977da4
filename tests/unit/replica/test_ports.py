"""Direct ports: who gets which, what happens when one is taken, and when one is free again."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pyserve.config.ingress import DirectIngressSettings, PortRange
from pyserve.errors import MeshError
from pyserve.replica.listeners import PortLedger

pytestmark = pytest.mark.parity("S-62")

RANGE = PortRange(first=100, last=109)


class Machine:
    """A clock, the processes that live, and the ports that others hold."""

    def __init__(self, path: Path, *, tries: int = 100) -> None:
        self.now_s = 1000.0
        self.has_died = False
        self.held: set[int] = set()
        self.bound: list[int] = []
        self.ledger = PortLedger(
            path,
            DirectIngressSettings(port_tries=tries, quarantine_s=60.0),
            now=lambda: self.now_s,
            lives=lambda _pid: not self.has_died,
        )

    def bind(self, port: int) -> None:
        """Bind as the kernel would."""
        if port in self.held:
            raise OSError(errno.EADDRINUSE, "in use")
        self.bound.append(port)

    def lease(self, ports: PortRange = RANGE) -> int:
        """Take a port."""
        return self.ledger.lease(ports, self.bind)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without replicas."""
    return Machine(tmp_path / "ports.json")


def test_each_gets_a_port_of_its_own(machine: Machine) -> None:
    assert [100, 101, 102] == [machine.lease() for _ in range(3)]


def test_port_that_somebody_else_holds_is_passed_over(machine: Machine) -> None:
    machine.held = {100, 101}

    assert 102 == machine.lease()


def test_port_that_was_left_rests_before_it_is_used_again(machine: Machine) -> None:
    left = machine.lease()
    machine.ledger.release(left)
    machine.ledger.release(left)

    machine.now_s += 59.9
    assert left != machine.lease()
    machine.now_s += 0.2
    assert left == machine.lease()


def test_rest_of_a_killed_replicas_port_begins_when_it_is_noticed(machine: Machine) -> None:
    left = machine.lease()
    machine.has_died = True
    assert 101 == machine.lease()
    machine.has_died = False

    machine.now_s += 61
    assert left == machine.lease()


def test_tries_are_bounded_and_the_error_says_what_to_change(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "ports.json", tries=3)
    machine.held = {100, 101, 102}

    with pytest.raises(MeshError, match=r"100 to 109 could be bound .*: 3 were tried .*MIN/MAX"):
        machine.lease()


def test_range_without_a_free_port_says_how_many_rest(machine: Machine) -> None:
    for _ in range(len(RANGE)):
        machine.ledger.release(machine.lease())

    with pytest.raises(MeshError, match="0 were tried and 10 were left less than 60 s ago"):
        machine.lease()


def test_error_tells_why_the_last_port_could_not_be_bound(machine: Machine) -> None:
    def bind(port: int) -> None:
        raise OSError(f"no such address for {port}")

    with pytest.raises(MeshError, match=r"bound \(no such address for 109\): 10 were tried"):
        machine.ledger.lease(RANGE, bind)
    assert 100 == machine.lease()


@pytest.mark.parametrize("left_behind", ["", "{", "[]", '{"100": 1}', '{"x": [1, 2.0]}'])
def test_file_that_cannot_be_read_counts_as_empty(tmp_path: Path, left_behind: str) -> None:
    path = tmp_path / "ports.json"
    path.write_text(left_behind)

    assert 100 == Machine(path).lease()


def test_real_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    def listen(keep: list[socket.socket]) -> Callable[[int], None]:
        def bind(port: int) -> None:
            keep.append(socket.create_server(("127.0.0.1", port)))

        return bind

    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        kept: list[socket.socket] = []
        ledger = PortLedger(tmp_path / "ports.json", DirectIngressSettings())
        try:
            port = ledger.lease(PortRange(first=first, last=65535), listen(kept))
        finally:
            for each in kept:
                each.close()
    assert port > first
