"""A mesh whose pods show each other certificates of a Secret, with an ingress on each node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyserve.config.tls import TlsFiles
from tests.mesh.on_kubernetes.calling import Calls
from tests.mesh.on_kubernetes.cluster import Cluster
from tests.mesh.on_kubernetes.mesh import INGRESS, SETTLED_WITHIN_S, Mesh, mesh_in
from tests.mesh.security.clients import served_serial
from tests.support.authority import Authority, Files, Leaf

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MANY = 200
SECRET = "mesh-tls"
# A kubelet looks at Secrets once in a minute, and believes what it has seen for another one.
RENEWED_WITHIN_S = 180.0


class Private:
    """A mesh with certificates, and who signs them."""

    def __init__(self, mesh: Mesh, folder: Path) -> None:
        self.mesh = mesh
        self.name = f"pyserve-controller.{mesh.namespace}.svc"
        self.root = Authority()
        self.leaf: Leaf
        self._files = Files(folder / "tls")
        self.renew()
        mesh.arguments = ("--tls-secret", SECRET, "--ingress", "DaemonSet")
        mesh.tls = TlsFiles(
            cert_file=self._files.cert_file,
            key_file=self._files.key_file,
            ca_file=self._files.ca_file,
            names=(self.name,),
        )

    def renew(self) -> None:
        """Exchange the certificate, as cert-manager does."""
        self.leaf = self.root.issue(self.name)
        self._files.write(self.leaf, self.root)
        files = (self._files.cert_file, self._files.key_file, self._files.ca_file)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": SECRET, "namespace": self.mesh.namespace},
            "stringData": {each.name: each.read_text() for each in files},
        }
        self.mesh.cluster.kubectl("apply", "-f", "-", text=json.dumps(secret))

    def serials(self) -> set[int]:
        """Return the serial numbers of what all replicas of digits show now."""
        deployment = self.mesh.deployment()
        assert deployment is not None
        return {
            served_serial(each.address, self.leaf, self.root, name=self.name)
            for each in deployment.replicas
        }

    def shows(self, leaf: Leaf) -> bool:
        """Say whether this is what all replicas show."""
        return {leaf.serial} == self.serials()


@pytest.fixture(scope="module")
def private(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    folder = tmp_path_factory.mktemp("private")
    with mesh_in(cluster, folder) as mesh:
        yield Private(mesh, folder)


@pytest.mark.parity("G-40")
def test_calls_go_by_certificates_from_an_ingress_on_each_node(private: Private) -> None:
    mesh = private.mesh
    mesh.apply()
    mesh.cluster.eventually(mesh.is_settled, SETTLED_WITHIN_S)

    ingresses = mesh.pods(INGRESS).values()
    nodes = {each["metadata"]["name"] for each in mesh.cluster.get("nodes")}
    assert nodes == {each["spec"]["nodeName"] for each in ingresses}
    assert len(nodes) == len(ingresses)
    for each in ingresses:
        with Calls(f"{each['status']['podIP']}:8000") as calls:
            mesh.cluster.eventually(lambda calls=calls: len(calls.by_replica) == 2)  # type: ignore[misc]  # of each round
        assert not calls.failed
    assert private.shows(private.leaf)


def test_a_renewed_certificate_is_taken_without_a_lost_call(private: Private) -> None:
    mesh, before = private.mesh, set(private.mesh.pods())
    with Calls(mesh.address) as first:
        # Nodes learn a little later than pods that the pods of a Service are ready.
        mesh.cluster.eventually(lambda: first.count > 0)
    with Calls(mesh.address) as calls:
        mesh.cluster.eventually(lambda: calls.count > MANY)
        private.renew()
        mesh.cluster.eventually(lambda: private.shows(private.leaf), RENEWED_WITHIN_S)
        mesh.apply(replicas=3)
        mesh.cluster.eventually(lambda: mesh.is_settled(3), SETTLED_WITHIN_S)
        mesh.cluster.eventually(lambda: len(calls.by_replica) == 3)
    print(calls)
    assert not calls.failed
    assert before <= set(mesh.pods())
