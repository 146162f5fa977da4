"""Who reaches the pods of a mesh, and what a Prometheus elsewhere gets of it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mesh.on_kubernetes.cluster import Cluster
from tests.mesh.on_kubernetes.mesh import (
    CONTROLLER,
    INGRESS,
    SETTLED_WITHIN_S,
    TOKEN,
    Mesh,
    mesh_in,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OF_MESH = {"app.kubernetes.io/instance": "pyserve"}
SERVED = 8080
# Prints which addresses take a connection.
REACHES = """
import json, socket, sys

found = []
for address in json.loads(sys.argv[1]):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        found.append(address)
    except OSError:
        pass
print(json.dumps(found))
"""
# Prints the status of the metrics at each target that the first address lists.
SCRAPES = """
import json, sys, urllib.error, urllib.request

address, key = sys.argv[1:]

def get(url):
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b"[]"

status, listed = get(f"http://{address}/-/targets")
found = {"/-/targets": status}
for each in json.loads(listed):
    for target in each["targets"]:
        found[target] = get(f"http://{target}/metrics")[0]
print(json.dumps(found))
"""


def pod(name: str, image: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return a pod that serves files, and in which commands are run."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"example": name, **labels}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10002,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "command": ["python", "-m", "http.server", str(SERVED)],
                    "readinessProbe": {"tcpSocket": {"port": SERVED}, "periodSeconds": 1},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


class Other:
    """A pod that is none of the mesh's."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, labels: dict[str, str]) -> None:
        self._cluster, self._name, self._inside = cluster, name, ("-n", namespace)
        text = json.dumps(pod(name, cluster.image, labels))
        cluster.kubectl("apply", *self._inside, "-f", "-", text=text)
        cluster.kubectl(
            "wait", *self._inside, "--for=condition=Ready", f"pod/{name}", "--timeout=55s"
        )

    @property
    def address(self) -> str:
        """Where it serves."""
        found = self._cluster.get("pod", self._name, *self._inside)
        return f"{found['status']['podIP']}:{SERVED}"

    def run(self, program: str, *arguments: str) -> Any:
        """Run a program in it; return what that prints."""
        command = ("python", "-c", program, *arguments)
        return json.loads(self._cluster.kubectl("exec", self._name, *self._inside, "--", *command))

    def reaches(self, *addresses: str) -> set[str]:
        """Return which of these take a connection from it."""
        return set(self.run(REACHES, json.dumps(addresses)))


@pytest.fixture(scope="module")
def mesh(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with mesh_in(cluster, tmp_path_factory.mktemp("policies")) as made:
        made.apply()
        cluster.eventually(made.is_settled, SETTLED_WITHIN_S)
        cluster.eventually(lambda: len(made.ready(INGRESS)) == 2, SETTLED_WITHIN_S)
        yield made


@pytest.fixture(scope="module")
def stranger(cluster: Cluster) -> Iterator[Other]:
    """In another namespace, with the labels of the mesh: these count in its own."""
    with cluster.namespace() as namespace:
        yield Other(cluster, namespace, "stranger", OF_MESH)


@pytest.fixture(scope="module")
def policies(cluster: Cluster, stranger: Other) -> None:
    """Skip the test where the network of the cluster has no policies."""
    with cluster.namespace() as namespace:
        closed = Other(cluster, namespace, "closed", {})
        policy = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "closed"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []},
        }
        address = closed.address
        assert {address} == stranger.reaches(address)
        cluster.kubectl("apply", "-n", namespace, "-f", "-", text=json.dumps(policy))
        try:
            cluster.eventually(lambda: not stranger.reaches(address), 15)
        except AssertionError:
            pytest.skip("the network of this cluster takes no notice of NetworkPolicies")


def test_who_is_of_no_mesh_reaches_ingresses_and_metrics_alone(
    mesh: Mesh, stranger: Other, policies: None
) -> None:
    controller, ingress, replica = mesh.ready(CONTROLLER)[0], mesh.ready(INGRESS)[0], mesh.replica()
    service = f"pyserve-controller.{mesh.namespace}.svc:7000"
    open_to_all = {
        f"pyserve-ingress.{mesh.namespace}.svc:8000",
        f"{ingress}:8000",
        *(f"{each}:9101" for each in (controller, ingress, replica.rpartition(":")[0])),
    }
    of_the_mesh = {service, f"{controller}:7000", replica}
    neighbour = Other(mesh.cluster, mesh.namespace, "neighbour", {})
    member = Other(mesh.cluster, mesh.namespace, "member", OF_MESH)

    for each in (stranger, neighbour):
        assert open_to_all == each.reaches(*open_to_all, *of_the_mesh)
    assert open_to_all | of_the_mesh == member.reaches(*open_to_all, *of_the_mesh)


def test_a_prometheus_elsewhere_gets_all_metrics_with_the_key_and_none_without(
    mesh: Mesh, stranger: Other
) -> None:
    """By the name of the controller's Service alone."""
    address = f"pyserve-controller.{mesh.namespace}.svc:9101"
    key = hmac.new(bytes.fromhex(TOKEN), b"pyserve-admin", hashlib.sha256).hexdigest()

    statuses = stranger.run(SCRAPES, address, key)

    assert {200} == set(statuses.values()), statuses
    addresses = {f"{each}:9101" for each in mesh.ready(INGRESS)}
    assert {"/-/targets", address, *addresses} < statuses.keys()
    assert {"/-/targets": 401} == stranger.run(SCRAPES, address, "00" * 32)
