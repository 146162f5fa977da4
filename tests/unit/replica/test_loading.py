"""Deployments that a replica refuses before it makes an instance."""

import sys
from typing import Any

import cloudpickle
import pytest

from pyserve.config import DeploymentOptions
from pyserve.replica.loading import LoadError, load
from pyserve.wire.v1 import mesh_pb2
from services.echo import echo_pb2_grpc


class Service(echo_pb2_grpc.EchoServicer):
    """Its methods do not matter."""


def _divide() -> object:
    return 1 / 0


class _Unpickled:
    def __reduce__(self) -> Any:
        return _divide, ()


def _spec(application: str, target: object) -> mesh_pb2.DeploymentSpec:
    return mesh_pb2.DeploymentSpec(
        application=application,
        name="Echo",
        code=mesh_pb2.Code(pickled=cloudpickle.dumps(target), sys_path=sys.path),
        options_json=DeploymentOptions().to_json(),
    )


def test_a_service_may_have_the_name_of_the_plain_calls() -> None:
    for application in ("services.echo", "e"):
        loaded = load(_spec(application, Service))
        assert ("services.echo.Echo",) == tuple(service.name for service in loaded.services)


class NoKind(echo_pb2_grpc.EchoServicer):
    async def EchoStream(self, request: object) -> object:  # The .proto says it is a stream.
        raise NotImplementedError


def test_what_does_not_fit_is_told_without_a_traceback_of_ours() -> None:
    with pytest.raises(LoadError) as caught:
        load(_spec("e", NoKind))
    assert "EchoStream" in caught.value.summary
    assert "" == caught.value.traceback


def test_what_raises_in_user_code_is_told_with_its_traceback() -> None:
    with pytest.raises(LoadError) as caught:
        load(_spec("e", _Unpickled()))
    assert "ZeroDivisionError" in caught.value.summary
    assert "in _divide" in caught.value.traceback
