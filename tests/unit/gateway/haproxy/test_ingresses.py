"""An HAProxy falls back to the ingresses of a mesh, wherever they are."""

from __future__ import annotations

import pytest

from pyserve.gateway.haproxy.targets import KEPT_S, Ingresses
from pyserve.wire.v1 import control_pb2

_CONTROLLER = "10.0.0.7:6000"


def reply(*addresses: str, speaks_tls: bool = False) -> control_pb2.StatusReply:
    return control_pb2.StatusReply(
        addresses=addresses, ingress=control_pb2.IngressStatus(speaks_tls=speaks_tls)
    )


@pytest.mark.parametrize(
    ("listened", "controller", "expected"),
    [
        (["127.0.0.1:8000", "[::1]:8000"], "unix:/c", ["127.0.0.1:8000"]),
        (["0.0.0.0:8000", "0.0.0.0:9000"], "unix:/c", ["127.0.0.1:8000"]),
        (["[::]:8000"], "unix:/c", ["[::1]:8000"]),
        (["0.0.0.0:8000"], "10.0.0.7:6000", ["10.0.0.7:8000"]),
        (["10.0.0.7:8000", "10.0.0.8:8000"], "10.0.0.7:6000", ["10.0.0.7:8000", "10.0.0.8:8000"]),
        ([], "unix:/c", []),
    ],
)
def test_the_ingress_is_one_server_for_each_machine(
    listened: list[str], controller: str, expected: list[str]
) -> None:
    assert expected == list(Ingresses().place(reply(*listened), controller, 0.0).addresses)


def test_an_ingress_that_its_controller_does_not_know_yet_is_kept_for_a_while() -> None:
    known = Ingresses()
    both = known.place(reply("10.0.0.7:8000", "10.0.0.8:8000", speaks_tls=True), _CONTROLLER, 0.0)
    assert ("10.0.0.7:8000", "10.0.0.8:8000") == both.addresses

    assert both == known.place(reply(), _CONTROLLER, 1.0)
    again = reply("10.0.0.8:8000", speaks_tls=True)
    assert both == known.place(again, _CONTROLLER, KEPT_S - 0.1)

    one = known.place(again, _CONTROLLER, KEPT_S)
    assert (("10.0.0.8:8000",), True) == (one.addresses, one.speaks_tls)
    assert () == known.place(reply(), _CONTROLLER, 3 * KEPT_S).addresses


def test_an_ingress_at_another_port_takes_the_place_of_the_one_before() -> None:
    known = Ingresses()
    known.place(reply("127.0.0.1:8000", speaks_tls=True), "unix:/c", 0.0)
    found = known.place(reply("127.0.0.1:9000"), "unix:/c", 1.0)
    assert (("127.0.0.1:9000",), False) == (found.addresses, found.speaks_tls)
