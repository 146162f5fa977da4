"""Knobs of the ingress and of direct ports, under our names and under Ray Serve's."""

from __future__ import annotations

import warnings

import pytest

from pyserve.config import older_names, read_settings
from pyserve.config.http import HTTPOptions, ProxyLocation
from pyserve.config.http import gRPCOptions as GrpcOptions
from pyserve.config.ingress import IngressSettings, PortRange, environment_of
from pyserve.errors import OptionError


@pytest.mark.parametrize(
    ("name", "alias", "text", "field", "value"),
    [
        pytest.param(
            *("MAX_CONNECTIONS", "HAPROXY_MAXCONN", "77", "connections_max", 77),
            marks=pytest.mark.parity("S-63"),
        ),
        pytest.param(
            *("IO_THREADS", "HAPROXY_NBTHREAD", "3", "io_threads", 3),
            marks=pytest.mark.parity("S-64"),
        ),
        pytest.param(
            *("CLIENT_TIMEOUT_S", "HAPROXY_TIMEOUT_CLIENT_S", "1.5", "client_timeout_s", 1.5),
            marks=pytest.mark.parity("S-65"),
        ),
        pytest.param(
            *("SERVER_TIMEOUT_S", "HAPROXY_TIMEOUT_SERVER_S", "9", "server_timeout_s", 9.0),
            marks=pytest.mark.parity("S-66"),
        ),
        pytest.param(
            *("CONNECT_TIMEOUT_S", "HAPROXY_TIMEOUT_CONNECT_S", "4", "connect_timeout_s", 4.0),
            marks=pytest.mark.parity("S-67"),
        ),
        pytest.param(
            *("HARD_STOP_AFTER_S", "HAPROXY_HARD_STOP_AFTER_S", "7", "hard_stop_after_s", 7.0),
            marks=pytest.mark.parity("S-68"),
        ),
        ("KEEP_ALIVE_TIMEOUT_S", "HTTP_KEEP_ALIVE_TIMEOUT_S", "5", "keep_alive_timeout_s", 5.0),
        ("DRAIN_S", "PROXY_MIN_DRAINING_PERIOD_S", "30", "drain_s", 30.0),
        ("PORT", "DEFAULT_HTTP_PORT", "9999", "port", 9999),
    ],
)
def test_knob_is_read_under_both_names_and_ours_wins(
    name: str, alias: str, text: str, field: str, value: object
) -> None:
    ours, theirs = f"PYSERVE_INGRESS_{name}", f"RAY_SERVE_{alias}"

    assert value == getattr(read_settings({ours: text}).ingress, field)
    assert value == getattr(read_settings({theirs: text}).ingress, field)
    assert [f"{theirs} is read as {ours}; write {ours}"] == older_names({theirs: text})
    assert value == getattr(read_settings({theirs: "11", ours: text}).ingress, field)


def test_nothing_set_gives_the_defaults_of_the_reference() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_settings({})

    assert IngressSettings() == found.ingress
    assert (20_000, 3600.0, None, 120.0) == (
        found.ingress.connections_max,
        found.ingress.client_timeout_s,
        found.ingress.server_timeout_s,
        found.ingress.hard_stop_after_s,
    )
    assert not found.direct_ingress.enabled


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYSERVE_INGRESS_MAX_CONNECTIONS", "0"),
        ("PYSERVE_INGRESS_MAX_CONNECTIONS", "many"),
        ("PYSERVE_INGRESS_IO_THREADS", "-1"),
        ("PYSERVE_IDLE_CONNECTION_MEMORY_MB", "-1"),
        ("PYSERVE_IDLE_CONNECTION_MEMORY_MB", "1.5"),
        ("PYSERVE_INGRESS_CLIENT_TIMEOUT_S", "0"),
        ("PYSERVE_INGRESS_CONNECT_TIMEOUT_S", "nan"),
        ("PYSERVE_INGRESS_MAX_BODY_BYTES", "1k"),
        ("PYSERVE_INGRESS_PORT", "65536"),
        ("PYSERVE_INGRESS_LOCATION", "Somewhere"),
        ("PYSERVE_INGRESS_ROOT_PATH", "gateway/"),
        ("PYSERVE_REQUEST_TIMEOUT_S", "soon"),
        ("PYSERVE_DIRECT_INGRESS", "yes"),
        ("PYSERVE_DIRECT_INGRESS_MIN_HTTP_PORT", "31001"),
        ("PYSERVE_DIRECT_INGRESS_PORT_TRIES", "0"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name}="):
        read_settings({name: value})


@pytest.mark.parity("S-45")
def test_time_limit_of_all_requests_comes_from_the_environment() -> None:
    assert 2.0 == read_settings({"PYSERVE_REQUEST_TIMEOUT_S": "2"}).ingress.request_timeout_s
    assert read_settings({"PYSERVE_REQUEST_TIMEOUT_S": "0"}).ingress.request_timeout_s is None
    found = read_settings({"RAY_SERVE_REQUEST_PROCESSING_TIMEOUT_S": "3"})
    assert 3.0 == found.ingress.request_timeout_s


@pytest.mark.parametrize(("text", "expected"), [("", 48 << 20), ("0", 0), ("7", 7 << 20)])
def test_memory_of_idle_connections_is_given_in_mebibytes(text: str, expected: int) -> None:
    found = read_settings({"PYSERVE_IDLE_CONNECTION_MEMORY_MB": text}).ingress

    assert expected == found.idle_bytes_max


@pytest.mark.parity("S-73")
def test_host_to_bind_has_ray_serves_name_too() -> None:
    assert "0.0.0.0" == read_settings({"RAY_SERVE_DEFAULT_HTTP_HOST": "0.0.0.0"}).node.bind_host


@pytest.mark.parity("S-62")
def test_ranges_of_direct_ports_have_ray_serves_defaults_and_names() -> None:
    found = read_settings({"PYSERVE_DIRECT_INGRESS": "1"}).direct_ingress
    assert (PortRange(first=30_000, last=31_000), PortRange(first=40_000, last=41_000), 100) == (
        found.http,
        found.grpc,
        found.port_tries,
    )

    found = read_settings({"RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": "40990"}).direct_ingress
    assert 11 == len(found.grpc)


@pytest.mark.parity("G-39")
@pytest.mark.parity("G-45")
def test_options_travel_to_the_process_of_the_mesh_as_variables() -> None:
    http = HTTPOptions(
        root_path="/gateway", keep_alive_timeout_s=5, request_timeout_s=3, location="HeadOnly"
    )
    found = read_settings(environment_of(http, GrpcOptions(request_timeout_s=2))).ingress

    expected = IngressSettings(
        root_path="/gateway",
        keep_alive_timeout_s=5.0,
        request_timeout_s=2.0,
        location=ProxyLocation.HeadOnly,
    )
    assert expected == found
    assert {} == environment_of(HTTPOptions(), GrpcOptions())


def test_direct_ports_do_not_go_around_access_rules() -> None:
    with pytest.raises(OptionError, match="PYSERVE_DIRECT_INGRESS and PYSERVE_ACCESS_FILE"):
        read_settings({"PYSERVE_DIRECT_INGRESS": "1", "PYSERVE_ACCESS_FILE": "/rules.yaml"})
