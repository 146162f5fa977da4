"""Where a controller is reached, and what it says of those who have no token."""

import logging
import re
from typing import Any

import pytest

from pyserve.aio.mesh_channel import dial, proof
from pyserve.config import read_settings
from pyserve.control.server.transport import TcpPlace, make_server, same_place, tcp_place
from pyserve.errors import MeshError

PLAIN = {"MESH_PLAIN_TCP": "1"}
TLS = {f"MESH_TLS_{name}_FILE": f"/tls/{name}" for name in ("CERT", "KEY", "CA")}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"BIND_HOST": "127.0.0.1"}, None),
        ({"BIND_HOST": "::1"}, None),
        ({"BIND_HOST": "localhost"}, None),
        ({"CONTROLLER": "unix:/run/mesh.sock"}, None),
        ({"ADVERTISE_HOST": "10.0.0.7"}, TcpPlace("127.0.0.1:0", "10.0.0.7")),
        ({"BIND_HOST": "::1", "ADVERTISE_HOST": "me"}, TcpPlace("[::1]:0", "me")),
        ({"CONTROLLER": "127.0.0.1:7000"}, TcpPlace("127.0.0.1:7000", "127.0.0.1")),
        ({"CONTROLLER": "[::1]:0"}, TcpPlace("[::1]:0", "[::1]")),
    ],
)
@pytest.mark.parametrize("more", [{}, PLAIN, TLS])
def test_tcp_is_for_controllers_that_others_are_to_reach(
    more: dict[str, str], environment: dict[str, str], expected: TcpPlace | None
) -> None:
    assert expected == place({**environment, **more})


@pytest.mark.parametrize(
    ("environment", "secured", "plain"),
    [
        ({"BIND_HOST": "0.0.0.0"}, TcpPlace("0.0.0.0:0", "0.0.0.0"), None),
        ({"BIND_HOST": "::", "ADVERTISE_HOST": "me"}, TcpPlace("[::]:0", "me"), None),
        (
            {"CONTROLLER": "127.0.0.1:7000", "BIND_HOST": "0.0.0.0"},
            TcpPlace("0.0.0.0:7000", "127.0.0.1"),
            TcpPlace("127.0.0.1:7000", "127.0.0.1"),
        ),
    ],
)
def test_what_opens_ingress_and_replicas_shows_the_token_to_no_network(
    environment: dict[str, str], secured: TcpPlace, plain: TcpPlace | None
) -> None:
    assert plain == place(environment)
    assert [secured, secured] == [place({**environment, **more}) for more in (PLAIN, TLS)]


@pytest.mark.parametrize("host", ["mesh", "10.0.0.5", "[2001:db8::1]", "0.0.0.0"])
def test_a_place_for_others_needs_tls_or_the_switch(host: str) -> None:
    environment = {"CONTROLLER": f"{host}:7000"}
    with pytest.raises(MeshError, match=rf"{re.escape(host)}:7000.*_MESH_TLS_.*_PLAIN_TCP=1"):
        place(environment)
    for more in (PLAIN, TLS):
        assert TcpPlace("0.0.0.0:7000", host) == place(
            {**environment, **more, "BIND_HOST": "0.0.0.0"}
        )


def place(environment: dict[str, str]) -> TcpPlace | None:
    return tcp_place(
        read_settings({f"PYSERVE_{name}": value for name, value in environment.items()})
    )


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
