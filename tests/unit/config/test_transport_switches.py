"""Switches of Ray Serve for the transport of calls mean nothing here, and disturb nobody."""

import pytest

from pyserve.config import older_names, read_settings, unknown_names


@pytest.mark.parity("S-77")
@pytest.mark.parametrize("value", ["0", "1", "yes"])
@pytest.mark.parametrize("name", ["RAY_SERVE_PROXY_USE_GRPC", "PYSERVE_PROXY_USE_GRPC"])
def test_the_transport_of_the_proxy_is_accepted_quietly(name: str, value: str):
    """Whatever it says, the ingress speaks gRPC natively; nobody is warned or refused."""
    environment = {"PYSERVE_HOME": "/tmp/pyserve"}

    assert read_settings(environment) == read_settings({**environment, name: value})
    assert [] == older_names({name: value}) == unknown_names({**environment, name: value})
