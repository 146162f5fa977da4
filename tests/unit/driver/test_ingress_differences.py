"""Settings that a running mesh cannot take on are reported, but not those that it has already."""

from typing import Any

import pytest

from pyserve.config import HTTPOptions, TracingConfig, gRPCOptions
from pyserve.config.environment import read_ingress_variables
from pyserve.config.ingress import OPTION_VARIABLES, environment_of
from pyserve.config.launchers import LauncherConfig
from pyserve.driver.ingress_options import IngressOptions
from pyserve.errors import MeshError
from pyserve.wire.v1 import control_pb2

_HERE = ("127.0.0.1:8000",)


class Running:
    """A mesh that was started with some variables."""

    def __init__(self, **variables: str) -> None:
        self.variables = variables
        self.timeouts_s: list[float | None] = []

    def config(self) -> control_pb2.ConfigReply:
        return control_pb2.ConfigReply(ingress_variables=self.variables)

    def set_request_timeout(self, timeout_s: float | None) -> None:
        self.timeouts_s.append(timeout_s)


def differences(running: Running, *given: Any) -> list[str]:
    return IngressOptions.of(*given).differences(running, _HERE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "variables"),
    [
        ((None, None, None), {}),
        (({"port": 8000}, {"port": 9000}, "EveryNode"), {}),
        ((None, None, "HeadOnly"), {"PYSERVE_INGRESS_LOCATION": "EveryNode"}),
        (({"root_path": "/a"}, None, None), {"PYSERVE_INGRESS_ROOT_PATH": "/a"}),
        (({"request_timeout_s": 3}, None, None), {}),
        (({"port": 0}, {"port": 0}, None), {}),
        ((None, None, None, None, "process"), {}),
        ((None, None, None, None, "external"), {"PYSERVE_LAUNCHER": "external"}),
    ],
)
def test_what_is_so_already_is_no_difference(given: Any, variables: dict[str, str]) -> None:
    assert [] == differences(Running(**variables), *given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (({"host": "0.0.0.0"}, None, None), "listens at 127.0.0.1:8000, not at 0.0.0.0:8000"),
        (({"host": "0.0.0.0", "port": 0}, None, None), "not at 0.0.0.0:0"),
        (({"root_path": "/b"}, None, None), "PYSERVE_INGRESS_ROOT_PATH"),
        ((None, None, "Disabled"), "PYSERVE_INGRESS_LOCATION"),
        (({"keep_alive_timeout_s": 5}, None, None), "KEEP_ALIVE_TIMEOUT_S"),
        ((None, None, None, None, "external"), "launcher 'external' is not what"),
        ((None, None, None, None, {"name": "process", "at": 1}), "launcher 'process' is not what"),
    ],
)
def test_what_needs_a_new_mesh_is_a_line(given: Any, said: str) -> None:
    (line,) = differences(Running(PYSERVE_INGRESS_ROOT_PATH="/a"), *given)

    assert said in line


def test_start_takes_what_is_so_already_and_refuses_the_rest() -> None:
    running = Running(PYSERVE_INGRESS_ROOT_PATH="/a")
    options = IngressOptions.of({"root_path": "/a", "request_timeout_s": 2}, None, None)

    options.apply(running)  # type: ignore[arg-type]

    assert [2.0] == running.timeouts_s
    with pytest.raises(MeshError, match="PYSERVE_INGRESS_ROOT_PATH"):
        IngressOptions.of({"root_path": "/b"}, None, None).apply(running)  # type: ignore[arg-type]


def test_every_variable_of_an_option_is_compared() -> None:
    http = HTTPOptions(
        root_path="/a",
        keep_alive_timeout_s=1,
        location="Disabled",
        ssl_certfile="c",
        ssl_keyfile="k",
        ssl_ca_certs="a",
    )
    grpc = gRPCOptions(grpc_servicer_functions=["a:b"])
    launcher = LauncherConfig().environment()
    named = {**environment_of(http, grpc), **TracingConfig().environment(), **launcher}

    assert set(OPTION_VARIABLES) == named.keys()
    assert named == read_ingress_variables({**named, "PYSERVE_HOME": "/x"})
