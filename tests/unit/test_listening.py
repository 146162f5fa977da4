"""Sockets that are held for those who listen at them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pyserve.errors import MeshError
from pyserve.listening import HeldSockets, bind_all

TIMEOUT_S = 5.0


@pytest.fixture
def held() -> Iterator[HeldSockets]:
    sockets = HeldSockets(["127.0.0.1:0"])
    yield sockets
    sockets.close()


def listener(held: HeldSockets) -> socket.socket:
    """Listen as another process would, which has the descriptor."""
    (descriptor,) = held.open()
    with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
        copy.listen()
        return copy.dup()


def test_who_comes_while_nobody_listens_waits_for_the_next_one(held: HeldSockets) -> None:
    first = listener(held)
    address = first.getsockname()
    first.close()
    with (
        socket.create_connection(address, timeout=TIMEOUT_S) as client,
        listener(held) as next_one,
    ):
        next_one.settimeout(TIMEOUT_S)
        accepted, peer = next_one.accept()
        accepted.close()
        assert client.getsockname() == peer


def test_nobody_waits_before_the_first_one_and_after_the_last(held: HeldSockets) -> None:
    (descriptor,) = held.open()
    with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
        address = copy.getsockname()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=TIMEOUT_S)
    with listener(held):
        held.close()
        socket.create_connection(address, timeout=TIMEOUT_S).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=TIMEOUT_S)


def test_what_was_closed_is_bound_where_clients_know_it(held: HeldSockets) -> None:
    with listener(held) as first:
        address = first.getsockname()
        assert list(held.open()) == list(held.open())
        held.close()
    with listener(held) as second:
        assert address == second.getsockname()


def test_a_port_that_is_taken_is_said_and_nothing_stays_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(MeshError, match=rf"port {port} is taken.*port 0 picks a free one"):
            bind_all(["127.0.0.1:0", f"127.0.0.1:{port}"])


def test_an_address_that_this_machine_does_not_have_is_left_out_beside_another() -> None:
    """192.0.2.0/24 is nobody's (RFC 5737)."""
    nobodys = "192.0.2.1:0"
    (bound,) = bind_all([nobodys, "127.0.0.1:0"])
    with bound:
        assert "127.0.0.1" == bound.getsockname()[0]
    (bound,) = bind_all(["127.0.0.1:0", nobodys])
    bound.close()
    for addresses in ([nobodys], [nobodys, nobodys]):
        with pytest.raises(MeshError, match=r"cannot listen at 192\.0\.2\.1:0"):
            bind_all(addresses)
