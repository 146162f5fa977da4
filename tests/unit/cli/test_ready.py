"""What ``pyserve run`` says of an application that serves."""

from typing import Any, cast

from pyserve.cli.ready import print_ready
from pyserve.driver.session import Session
from pyserve.wire.v1 import control_pb2


class Client:
    """Knows one application, of which the version before still drains."""

    def status(self) -> control_pb2.StatusReply:
        deployments = [
            control_pb2.DeploymentStatus(name="Greeter", wanted=0),
            control_pb2.DeploymentStatus(name="Hello", wanted=1),
            control_pb2.DeploymentStatus(name="Empty", wanted=0),
        ]
        application = control_pb2.ApplicationStatus(
            name="shop", route_prefix="/", deployments=deployments
        )
        return control_pb2.StatusReply(applications=[application])


class Fake:
    client = Client()


def test_a_deployment_of_the_version_before_is_not_told_as_one_without_replicas(capsys: Any):
    session = cast("Session", Fake())

    print_ready(session, "shop", "Hello", {"Hello", "Empty"}, ("127.0.0.1:8000",))

    told = capsys.readouterr().out
    assert "Greeter" not in told
    assert "Empty has no replicas (num_replicas=0)" in told
    assert "plain HTTP at http://127.0.0.1:8000/" in told
