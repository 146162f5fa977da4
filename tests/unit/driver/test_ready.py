"""What ``pyserve run`` says of an application that serves."""

from typing import cast

from pyserve.driver.progress import ready
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
            name="shop",
            route_prefix="/",
            deployments=deployments,
            ingress_deployment="Hello",
        )
        return control_pb2.StatusReply(applications=[application])


class Fake:
    client = Client()


def test_a_deployment_of_the_version_before_is_not_told_as_one_without_replicas() -> None:
    session = cast("Session", Fake())

    told = "\n".join(ready(session, {"shop": {"Hello", "Empty"}}, ("127.0.0.1:8000",)))

    assert "Greeter" not in told
    assert "Empty has no replicas (num_replicas=0)" in told
    assert "plain HTTP at http://127.0.0.1:8000/" in told


def test_an_application_that_is_not_meant_is_not_told() -> None:
    assert [] == list(ready(cast("Session", Fake()), {"other": {"Hello"}}, ()))
