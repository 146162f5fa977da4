"""Where a controller is reached, and what it says of those who have no token."""

import logging
from typing import Any

import pytest

from pyserve.aio.mesh_channel import dial, proof
from pyserve.config import read_settings
from pyserve.control.server.transport import TcpPlace, make_server, same_place, tcp_place


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"BIND_HOST": "127.0.0.1"}, None),
        ({"BIND_HOST": "::1"}, None),
        ({"BIND_HOST": "localhost"}, None),
        ({"CONTROLLER": "unix:/run/mesh.sock"}, None),
        ({"BIND_HOST": "0.0.0.0"}, TcpPlace("0.0.0.0:0", "0.0.0.0")),
        ({"BIND_HOST": "::", "ADVERTISE_HOST": "me"}, TcpPlace("[::]:0", "me")),
        ({"ADVERTISE_HOST": "10.0.0.7"}, TcpPlace("127.0.0.1:0", "10.0.0.7")),
        ({"BIND_HOST": "::1", "ADVERTISE_HOST": "me"}, TcpPlace("[::1]:0", "me")),
        ({"CONTROLLER": "127.0.0.1:7000"}, TcpPlace("127.0.0.1:7000", "127.0.0.1")),
        ({"CONTROLLER": "[::1]:0"}, TcpPlace("[::1]:0", "[::1]")),
        ({"CONTROLLER": "mesh:7000", "BIND_HOST": "0.0.0.0"}, TcpPlace("0.0.0.0:7000", "mesh")),
    ],
)
def test_tcp_is_for_controllers_that_others_are_to_reach(
    environment: dict[str, str], expected: TcpPlace | None
) -> None:
    settings = read_settings({f"PYSERVE_{name}": value for name, value in environment.items()})
    assert expected == tcp_place(settings)


async def test_calls_with_a_wrong_token_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server(b"right")
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    path = "/pyserve.wire.v1.Control/" + "x" * 1000
    with caplog.at_level(logging.WARNING):
        async with dial(address) as channel:
            call: Any = channel.unary_unary(path)
            for _ in range(3):
                code = await call(b"", metadata=proof(b"wrong")).code()
                assert "UNAUTHENTICATED" == code.name
    await server.stop(None)
    (record,) = caplog.records
    assert "without the mesh token" in record.getMessage()
    assert len(record.getMessage()) < 300
    assert "right" not in record.getMessage()


@pytest.mark.parametrize(
    ("bind", "former", "expected"),
    [
        ("0.0.0.0:0", "10.0.0.7:4000", "0.0.0.0:4000"),
        ("[::]:0", "node-7:4000", "[::]:4000"),
        ("0.0.0.0:7000", "10.0.0.7:4000", "0.0.0.0:7000"),
        ("0.0.0.0:0", "", "0.0.0.0:0"),
    ],
)
def test_a_port_that_any_would_do_for_is_that_of_the_controller_before(bind, former, expected):
    found = same_place(TcpPlace(bind, "me"), former)
    assert TcpPlace(expected, "me") == found
    assert same_place(None, former) is None
