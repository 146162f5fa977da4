"""What ``pyserve status`` prints, and with ``--watch`` where no terminal is."""

from pyserve.cli.status import as_text, changes, states
from pyserve.driver.status import plain_values, read_status
from pyserve.wire.v1 import control_pb2, mesh_pb2


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


def test_the_page_is_named_beside_the_metrics_where_an_ingress_shows_it() -> None:
    """A controller without an ingress beside it has metrics, and no page."""
    ingress = control_pb2.IngressStatus(
        node="here", addresses=["127.0.0.1:8000"], admin="127.0.0.1:9101"
    )
    reply = control_pb2.StatusReply(ingresses=[ingress], admin="127.0.0.1:9102")

    lines = as_text(read_status(reply)).splitlines()

    assert "page at http://127.0.0.1:9101/, metrics at http://127.0.0.1:9101/metrics" in lines
    assert "metrics at http://127.0.0.1:9102/metrics" in lines


def test_admin_servers_that_speak_tls_are_named_so() -> None:
    """Where their ingress does, but on the loopback."""
    ingresses = [
        control_pb2.IngressStatus(addresses=["192.0.2.1:443"], admin=each, speaks_tls=True)
        for each in ("192.0.2.1:9101", "127.0.0.1:9102")
    ]
    reply = control_pb2.StatusReply(ingresses=ingresses, admin="192.0.2.2:9101")

    lines = as_text(read_status(reply)).splitlines()

    assert "page at https://192.0.2.1:9101/, metrics at https://192.0.2.1:9101/metrics" in lines
    assert "page at http://127.0.0.1:9102/, metrics at http://127.0.0.1:9102/metrics" in lines
    assert "metrics at https://192.0.2.2:9101/metrics" in lines


def test_what_requests_cost_is_told_of_replicas_and_deployments() -> None:
    """Where every replica has a budget, that too."""
    costs = mesh_pb2.StepCosts(running=950, waiting=300, budget=1000)
    others = mesh_pb2.StepCosts(running=300, budget=1000)
    replicas = [
        control_pb2.ReplicaStatus(replica_id="Model#1", state="RUNNING", pid=1, costs=costs),
        control_pb2.ReplicaStatus(replica_id="Model#2", state="RUNNING", pid=2, costs=others),
    ]
    deployment = control_pb2.DeploymentStatus(
        name="Model", state="HEALTHY", wanted=2, replicas=replicas
    )
    application = control_pb2.ApplicationStatus(
        name="shop", state="RUNNING", deployments=[deployment]
    )
    reply = control_pb2.StatusReply(applications=[application])

    assert [
        "  Model  HEALTHY  2/2 replicas",
        "    requests cost 1250 of 2000, 300 waiting",
        "    Model#1  RUNNING  pid 1  cost 950 of 1000, 300 waiting",
        "    Model#2  RUNNING  pid 2  cost 300 of 1000, 0 waiting",
    ] == as_text(read_status(reply)).splitlines()[-4:]
    values = plain_values(read_status(reply))["applications"]["shop"]["deployments"]["Model"]
    assert {"running": 1250, "waiting": 300, "budget": 2000} == values["costs"]
    assert {"running": 300, "waiting": 0, "budget": 1000} == values["replicas"][1]["costs"]

    replicas[1].costs.budget = 0
    deployment.ClearField("replicas")
    deployment.replicas.extend([*replicas, control_pb2.ReplicaStatus(replica_id="Model#3")])
    found = read_status(
        control_pb2.StatusReply(
            applications=[
                control_pb2.ApplicationStatus(
                    name="shop", state="RUNNING", deployments=[deployment]
                )
            ]
        )
    )
    assert "    requests cost 1250, 300 waiting" in as_text(found).splitlines()
