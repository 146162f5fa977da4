"""Prometheus gets every admin server of a mesh as a target, once."""

from pyserve.admin.application import targets_of
from pyserve.wire.v1 import control_pb2


def status() -> control_pb2.StatusReply:
    replicas = [
        control_pb2.ReplicaStatus(replica_id="A#1", node="c", admin="10.0.0.3:9101"),
        control_pb2.ReplicaStatus(replica_id="A#2", node="a"),
    ]
    deployment = control_pb2.DeploymentStatus(name="A", replicas=replicas)
    return control_pb2.StatusReply(
        ingresses=[
            control_pb2.IngressStatus(node="a", admin="127.0.0.1:9101", addresses=["x:1"]),
            control_pb2.IngressStatus(node="gone", admin="10.0.0.9:9101"),
        ],
        admin="10.0.0.2:9101",
        applications=[control_pb2.ApplicationStatus(name="app", deployments=[deployment])],
    )


def test_ingresses_a_controller_of_its_own_and_replicas_of_their_own_are_targets():
    assert [
        ("10.0.0.2:9101", "", "controller"),
        ("10.0.0.3:9101", "c", "replica"),
        ("127.0.0.1:9101", "a", "ingress"),
    ] == [
        (each["targets"][0], each["labels"]["pyserve_node"], each["labels"]["pyserve_role"])
        for each in targets_of(status(), speaks_tls=False)
    ]


def test_tls_is_spoken_where_it_is_not_loopback():
    assert ["https", "https", None] == [
        each["labels"].get("__scheme__") for each in targets_of(status(), speaks_tls=True)
    ]
