"""Options of the ingress under Ray Serve's names: what is taken, and what is refused and how."""

from __future__ import annotations

import enum

import pytest

from pyserve.config import BackpressureConfig, DeploymentOptions, HTTPOptions, ProxyLocation
from pyserve.config import gRPCOptions as GrpcOptions
from pyserve.errors import OptionError


def test_mapping_and_object_are_the_same() -> None:
    made = HTTPOptions(host="0.0.0.0", port=9001, root_path="/gateway", request_timeout_s=3)
    given = {"host": "0.0.0.0", "port": 9001, "root_path": "/gateway", "request_timeout_s": 3}

    assert made == HTTPOptions.of("http_options", given)
    assert made is HTTPOptions.of("http_options", made)


class Mode(enum.Enum):
    """As Ray Serve's ``DeploymentMode`` is made."""

    NoServer = "NoServer"


@pytest.mark.parity("G-40")
@pytest.mark.parametrize(
    ("given", "location"),
    [
        ("EveryNode", ProxyLocation.EveryNode),
        ("HeadOnly", ProxyLocation.HeadOnly),
        ("Disabled", ProxyLocation.Disabled),
        (ProxyLocation.Disabled, ProxyLocation.Disabled),
        (Mode.NoServer, ProxyLocation.Disabled),
    ],
)
def test_location_is_understood_as_text_and_as_member(given: object, location: object) -> None:
    assert location is HTTPOptions.of("http_options", {"location": given}).location


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"port": 70000}, "http_options.port=70000"),
        ({"host": ""}, "http_options.host=''"),
        ({"root_path": "gateway"}, "http_options.root_path='gateway'"),
        ({"request_timeout_s": -1}, "http_options.request_timeout_s=-1"),
        ({"keep_alive_timeout_s": 0}, "http_options.keep_alive_timeout_s=0"),
        ({"keep_alive_timeout_s": "long"}, "http_options.keep_alive_timeout_s='long'"),
        ({"ssl_keyfile": "key.pem"}, "TLS needs both"),
        ({"ssl_keyfile_password": "x"}, "openssl pkey"),
        ({"location": "Everywhere"}, "http_options.location='Everywhere'"),
        ({"middlewares": [object()]}, "app.add_middleware"),
        ({"prot": 1}, "did you mean 'port'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        HTTPOptions.of("http_options", given)

    assert message in str(caught.value)


def test_grpc_options_have_a_port_of_their_own() -> None:
    assert 9000 == GrpcOptions.of("grpc_options", {}).port
    with pytest.raises(OptionError, match="grpc_servicer_functions"):
        GrpcOptions.of("grpc_options", {"grpc_servicer_functions": "a.b"})


@pytest.mark.parity("G-05")
def test_backpressure_config_names_one_of_two_statuses() -> None:
    options = DeploymentOptions.of({"backpressure_config": {"status_code": 429}})

    assert 429 == DeploymentOptions.from_json(options.to_json()).queue_full_status
    assert 503 == DeploymentOptions().queue_full_status
    assert BackpressureConfig(status_code=429) == options.backpressure_config
    with pytest.raises(OptionError, match="status_code=500"):
        DeploymentOptions.of({"backpressure_config": {"status_code": 500}})
