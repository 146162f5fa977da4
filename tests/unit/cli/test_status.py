"""What ``pyserve status --watch`` writes where no terminal is."""

from pyserve.cli.status import changes, states
from pyserve.driver.status import read_status
from pyserve.wire.v1 import control_pb2


def test_a_line_for_each_change_and_none_for_what_stays() -> None:
    before = {"shop": "RUNNING", "shop/Cart": "HEALTHY 1/1 replicas", "blog": "RUNNING"}
    after = {"shop": "RUNNING", "shop/Cart": "UPDATING 0/1 replicas: replicas start", "wiki": "X"}

    assert [
        "shop/Cart  UPDATING 0/1 replicas: replicas start",
        "wiki  X",
        "blog  is gone",
    ] == list(changes(before, after))


def test_states_count_the_replicas_that_run() -> None:
    deployment = control_pb2.DeploymentStatus(
        name="Cart",
        state="UPDATING",
        message="replicas start",
        wanted=2,
        replicas=[control_pb2.ReplicaStatus(state=each) for each in ("RUNNING", "STARTING")],
    )
    application = control_pb2.ApplicationStatus(
        name="shop", state="DEPLOYING", deployments=[deployment]
    )

    assert {
        "shop": "DEPLOYING",
        "shop/Cart": "UPDATING 1/2 replicas: replicas start",
    } == states(read_status(control_pb2.StatusReply(applications=[application])))
