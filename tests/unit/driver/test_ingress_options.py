"""What ``start`` asks of a mesh that it starts, and of one that runs already."""

from __future__ import annotations

import pytest

from pyserve.config import read_settings
from pyserve.driver.ingress_options import IngressOptions
from pyserve.driver.session import _check_addresses, default_addresses
from pyserve.errors import MeshError, OptionError
from pyserve.wire.v1 import control_pb2


class FakeClient:
    """Remembers what it was asked to change."""

    def __init__(self) -> None:
        self.timeouts_s: list[float | None] = []

    def config(self) -> control_pb2.ConfigReply:
        return control_pb2.ConfigReply()

    def set_request_timeout(self, timeout_s: float | None) -> None:
        """Take a change."""
        self.timeouts_s.append(timeout_s)


@pytest.mark.parametrize(
    ("http", "grpc", "addresses"),
    [
        (None, None, None),
        ({}, None, ("127.0.0.1:8000",)),
        ({"host": "::1", "port": 81}, None, ("[::1]:81",)),
        ({"port": 81}, {"port": 91}, ("127.0.0.1:81", "127.0.0.1:91")),
        ({"port": 81}, {"port": 81}, ("127.0.0.1:81",)),
        ({"port": 0}, {"port": 0}, ("127.0.0.1:0", "127.0.0.1:0")),
        (None, {}, ("127.0.0.1:8000", "127.0.0.1:9000")),
        ({"host": None}, None, ()),
    ],
)
@pytest.mark.parity("G-39")
@pytest.mark.parity("S-73")
def test_options_say_where_the_ingress_listens(
    http: dict[str, object] | None, grpc: dict[str, object] | None, addresses: object
) -> None:
    assert addresses == IngressOptions.of(http, grpc, None).addresses()


@pytest.mark.parametrize(
    ("http", "grpc", "asked"),
    [
        (None, None, ()),
        ({"request_timeout_s": 5}, {}, ()),
        ({"port": 81}, {}, ("127.0.0.1:81",)),
        ({"host": "::1"}, {"port": 91}, ("[::1]:8000", "[::1]:91")),
    ],
)
def test_defaults_ask_no_running_mesh_for_a_place(
    http: dict[str, object] | None, grpc: dict[str, object] | None, asked: tuple[str, ...]
) -> None:
    assert asked == IngressOptions.of(http, grpc, None).asked_addresses()


@pytest.mark.parametrize("asked", [(), ("127.0.0.1:81",), ("[::1]:81", "127.0.0.1:0")])
def test_running_mesh_that_listens_there_is_taken(asked: tuple[str, ...]) -> None:
    _check_addresses(asked, ("127.0.0.1:81", "[::1]:81"))


@pytest.mark.parametrize("asked", ["127.0.0.1:82", "0.0.0.0:0", "10.0.0.1:81"])
def test_running_mesh_that_listens_elsewhere_is_refused(asked: str) -> None:
    with pytest.raises(MeshError) as raised:
        _check_addresses((asked,), ("127.0.0.1:81",))

    assert f"listens at 127.0.0.1:81, not at {asked};" in str(raised.value)


@pytest.mark.parity("G-40")
@pytest.mark.parametrize(
    ("http", "location"),
    [(None, "Disabled"), ({"host": None}, None), ({"location": "Disabled"}, None)],
)
def test_ingress_is_turned_off_in_three_ways(
    http: dict[str, object] | None, location: str | None
) -> None:
    environment = IngressOptions.of(http, None, location).environment()

    assert "Disabled" == read_settings(environment).ingress.location


@pytest.mark.parity("G-45")
def test_time_limit_of_a_running_mesh_is_changed() -> None:
    client = FakeClient()

    for http, grpc in (
        ({"request_timeout_s": 2}, None),
        ({"request_timeout_s": 0}, None),
        (None, {"request_timeout_s": 3}),
        (None, None),
    ):
        IngressOptions.of(http, grpc, None).apply(client)  # type: ignore[arg-type]

    assert [2.0, 0.0, 3.0] == client.timeouts_s


def test_other_options_are_refused_by_a_mesh_that_runs() -> None:
    client = FakeClient()

    with pytest.raises(MeshError, match="PYSERVE_INGRESS_ROOT_PATH"):
        IngressOptions.of({"root_path": "/a", "request_timeout_s": 1}, None, None).apply(
            client  # type: ignore[arg-type]
        )

    assert [] == client.timeouts_s


def test_certificates_are_told_with_the_options_that_name_them() -> None:
    files = {"ssl_certfile": "/no/crt", "ssl_keyfile": __file__}
    with pytest.raises(OptionError, match=r"/no/crt \(http_options.ssl_certfile\) cannot be read"):
        IngressOptions.of(files, None, None)
    with pytest.raises(OptionError, match=f"private key: {__file__} in http_options.ssl_keyfile"):
        IngressOptions.of({**files, "ssl_certfile": __file__}, None, None)


def test_unknown_location_is_refused() -> None:
    with pytest.raises(OptionError, match="proxy_location='Here'"):
        IngressOptions.of(None, None, "Here")


@pytest.mark.parity("S-73")
@pytest.mark.parametrize(
    ("variables", "addresses"),
    [
        ({}, ("127.0.0.1:8000", "[::1]:8000")),
        ({"PYSERVE_BIND_HOST": "0.0.0.0"}, ("0.0.0.0:8000",)),
        ({"PYSERVE_BIND_HOST": "::", "PYSERVE_INGRESS_PORT": "81"}, ("[::]:81",)),
    ],
)
def test_loopback_is_the_default_and_the_environment_opens_it(
    variables: dict[str, str], addresses: tuple[str, ...]
) -> None:
    assert addresses == default_addresses(read_settings(variables))
