"""What a replica refuses to run before it makes anything of it."""

import sys

import cloudpickle
import pytest

from pyserve.config import DeploymentOptions
from pyserve.replica.loading import LoadError, load
from pyserve.wire.v1 import mesh_pb2
from services.echo import echo_pb2_grpc


class Service(echo_pb2_grpc.EchoServicer):
    """Its methods do not matter."""


def _spec(application: str) -> mesh_pb2.DeploymentSpec:
    return mesh_pb2.DeploymentSpec(
        application=application,
        name="Echo",
        code=mesh_pb2.Code(pickled=cloudpickle.dumps(Service), sys_path=sys.path),
        options_json=DeploymentOptions().to_json(),
    )


def test_a_service_with_the_name_of_the_plain_calls_is_refused() -> None:
    with pytest.raises(LoadError) as caught:
        load(_spec("services.echo"))
    assert "services.echo.Echo of its .proto, and its plain calls" in caught.value.summary
    assert "give the application another name" in caught.value.summary
    assert ("services.echo.Echo",) == tuple(service.name for service in load(_spec("e")).services)
