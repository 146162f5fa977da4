"""How calls travel inside a machine; switches of Ray Serve for that are accepted in silence."""

import pytest

from pyserve.config import older_names, read_settings, unknown_names
from pyserve.errors import OptionError


@pytest.mark.parity("S-77")
@pytest.mark.parametrize("value", ["0", "1", "yes"])
@pytest.mark.parametrize("name", ["RAY_SERVE_PROXY_USE_GRPC", "PYSERVE_PROXY_USE_GRPC"])
def test_the_transport_of_the_proxy_is_accepted(name: str, value: str):
    """Whatever it says, the ingress speaks gRPC natively; nobody is refused."""
    environment = {"PYSERVE_HOME": "/tmp/pyserve"}

    assert read_settings(environment) == read_settings({**environment, name: value})
    assert [f"{name} has no effect: the ingress speaks gRPC to replicas in any case"] == (
        older_names({name: value})
    )
    assert [] == unknown_names({**environment, name: value})


@pytest.mark.parity("S-59")
@pytest.mark.parametrize("prefix", ["RAY_SERVE_", "PYSERVE_"])
def test_what_else_throughput_mode_switches_is_accepted(prefix: str):
    """Values whole and ports of replicas have their meaning; the collector never looks anyway."""
    environment = {"PYSERVE_HOME": "/tmp/pyserve"}
    direct = {"RAY_SERVE_": "ENABLE_DIRECT_INGRESS", "PYSERVE_": "DIRECT_INGRESS"}[prefix]
    names = ("USE_GRPC_BY_DEFAULT", "FREEZE_GC_ON_STARTUP", direct)
    switches = {f"{prefix}{name}": "1" for name in names}
    found = read_settings({**environment, **switches})

    assert found.calls.by_reference is False
    assert found.direct_ingress.enabled
    assert found == read_settings(
        {**environment, "PYSERVE_USE_GRPC_BY_DEFAULT": "1", "PYSERVE_DIRECT_INGRESS": "1"}
    )
    assert [] == unknown_names({**environment, **switches})


@pytest.mark.parametrize(("text", "expected"), [("", 8 << 20), ("0", 0), ("1024", 1 << 30)])
def test_shared_memory_is_given_in_mebibytes(text: str, expected: int):
    found = read_settings({"PYSERVE_SHARED_MEMORY_MB": text}).node

    assert expected == found.shared_memory_bytes


@pytest.mark.parametrize("text", ["-1", "0.5", "1025", "8M"])
def test_shared_memory_that_cannot_be_had_is_refused(text: str):
    allowed = f"PYSERVE_SHARED_MEMORY_MB='{text}'.* a whole number from 0 to 1024"

    with pytest.raises(OptionError, match=allowed):
        read_settings({"PYSERVE_SHARED_MEMORY_MB": text})
