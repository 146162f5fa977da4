"""A mesh in a cluster: what was applied, and what runs of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from pyserve.config.tls import TlsFiles
from pyserve.control.discovery import MeshAddress
from pyserve.driver.client import ControlClient
from pyserve.driver.status import DeploymentStatusOverview, read_status
from pyserve.errors import MeshError
from tests.mesh.commands import ROOT
from tests.mesh.on_kubernetes.cluster import Cluster

SETTLED_WITHIN_S = 120.0
CONTROLLER, INGRESS, REPLICA = "controller", "ingress", "replica"
_CONTROLLER_POD = "pyserve-controller-0"
TOKEN = "cd" * 32
# Of the images in this repository.
_USER = 10001
# Calls go to both nodes, also from an ingress that has a replica on its own: a lost one counts.
ROUTING = {
    "policy": "p2c",
    "max_attempts": 3,
    "prefer_local_node": False,
    "prefer_local_zone": False,
}


class Mesh:
    """Digits and pipeline in a namespace.

    Args:
        cluster: It has the namespace.
        namespace: Of all of the mesh.
        folder: For files of its own.

    Attributes:
        file: The applications, as they were applied last.
        arguments: Of the command that prints the objects, besides.
        tls: What a driver shows to its controller; None: nothing.
    """

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.file = folder / "app.yaml"
        self.arguments: Sequence[str] = ()
        self.tls: TlsFiles | None = None
        self._token = folder / "token"
        self._token.touch(0o600)
        self._token.write_text(TOKEN)
        self._services: dict[str, str] = {}

    def apply(self, image: str = "", replicas: int = 2) -> None:
        """Apply the mesh with its applications; the image is that of digits alone."""
        digits: dict[str, Any] = {
            "name": "Digits",
            "num_replicas": replicas,
            "request_router_config": ROUTING,
        }
        if image:
            container = {"name": "replica", "image": image}
            digits["pod_template"] = {"spec": {"containers": [container]}}
        applications = [
            {
                "name": "digits",
                "route_prefix": None,
                "import_path": "services.digits.service:app",
                "deployments": [digits],
            },
            {
                "name": "pipeline",
                "route_prefix": "/pipeline",
                "import_path": "services.pipeline.service:app",
            },
        ]
        self.file.write_text(yaml.safe_dump({"applications": applications}))
        self.cluster.kubectl("apply", "-f", "-", text=self._manifests(self.file))

    def _manifests(self, file: Path) -> str:
        command = [
            *(sys.executable, "-m", "pyserve", "kubernetes", "manifests", str(file)),
            *("--image", self.cluster.image, "--namespace", self.namespace),
            *("--token-file", str(self._token), *self.arguments),
        ]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    def exec(self, *command: str, text: str = "") -> str:
        """Run a command in the controller's pod."""
        return self.cluster.kubectl(
            *("exec", "-i", "-n", self.namespace, _CONTROLLER_POD, "--", *command), text=text
        )

    def deployment(
        self, name: str = "Digits", application: str = "digits"
    ) -> DeploymentStatusOverview | None:
        """Return what the mesh says of a deployment; none while nobody can say."""
        address = MeshAddress(controller=self._service("controller"), token=bytes.fromhex(TOKEN))
        try:
            with closing(ControlClient(address, self.tls)) as client:
                found = read_status(client.status()).applications.get(application)
        except MeshError:
            return None
        return None if found is None else found.deployments.get(name)

    def message(self) -> str:
        """Return what the mesh wants people to look at in digits."""
        deployment = self.deployment()
        return "" if deployment is None else deployment.message

    def is_settled(self, count: int = 2) -> bool:
        """Say whether so many replicas of digits serve, and nothing is under way."""
        deployment = self.deployment()
        if deployment is None:
            return False
        states = [each.state for each in deployment.replicas]
        return ("HEALTHY", ["RUNNING"] * count) == (deployment.status, states)

    def pods(self, component: str = REPLICA, *, selector: str = "") -> dict[str, Any]:
        """Return the pods of a part of the mesh that nobody ends, by name."""
        labels = f"app.kubernetes.io/component={component}{selector and ','}{selector}"
        found = self.cluster.get("pods", "-n", self.namespace, "-l", labels)
        return {
            each["metadata"]["name"]: each
            for each in found
            if "deletionTimestamp" not in each["metadata"]
        }

    def digits(self) -> dict[str, Any]:
        """Return the pods of digits."""
        return self.pods(selector="pyserve/deployment=Digits")

    def has_pods(self, count: int) -> bool:
        """Say whether digits has so many pods."""
        return count == len(self.digits())

    def ready(self, component: str) -> list[str]:
        """Return the addresses of the pods of a part that are ready."""
        return [
            each["status"]["podIP"]
            for each in self.pods(component).values()
            if any(
                (found["type"], found["status"]) == ("Ready", "True")
                for found in each["status"].get("conditions", ())
            )
        ]

    def replica(self) -> str:
        """Return where the first replica of digits is called."""
        deployment = self.deployment()
        assert deployment is not None
        return deployment.replicas[0].address

    def spread(self) -> None:
        """Have replicas of digits on two nodes: one may have been replaced beside the other."""

        def is_spread() -> bool:
            found = self.digits()
            if not self.is_settled() or len(found) != 2:
                return False
            if 2 == len({each["spec"]["nodeName"] for each in found.values()}):
                return True
            self.cluster.kubectl("delete", "pod", min(found), "-n", self.namespace)
            return False

        self.cluster.eventually(is_spread, SETTLED_WITHIN_S)

    def is_new(self, before: set[str]) -> bool:
        """Say whether none of these pods is left, and others serve."""
        return not before & set(self.digits()) and self.is_settled()

    def controller(self) -> dict[str, Any]:
        """Return the controller's pod."""
        found: dict[str, Any] = self.pods(CONTROLLER)[_CONTROLLER_POD]
        return found

    def end_controller(self, *arguments: str) -> None:
        """Delete the controller's pod, and wait until it is gone."""
        self.cluster.kubectl("delete", "pod", _CONTROLLER_POD, "-n", self.namespace, *arguments)

    @property
    def address(self) -> str:
        """Of the Service of the ingresses."""
        return self._service("ingress")

    def _service(self, component: str) -> str:
        if component not in self._services:
            spec = self.cluster.get("service", f"pyserve-{component}", "-n", self.namespace)["spec"]
            self._services[component] = f"{spec['clusterIP']}:{spec['ports'][0]['port']}"
        return self._services[component]


@contextlib.contextmanager
def mesh_in(cluster: Cluster, folder: Path) -> Iterator[Mesh]:
    """Have a namespace for a mesh until the block ends, with a place for its state."""
    # Of a cluster that makes no volumes by itself: all of its nodes see this folder.
    state = tempfile.mkdtemp(prefix="pyserve-state-", dir="/tmp")
    os.chown(state, _USER, _USER)
    with cluster.namespace() as namespace:
        for each in (_volume(namespace, state), _policy(namespace, cluster.addresses())):
            cluster.kubectl("apply", "-f", "-", text=json.dumps(each))
        try:
            yield Mesh(cluster, namespace, folder)
        finally:
            cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false", check=False)
            for kind in ("clusterrole", "clusterrolebinding"):
                cluster.kubectl("delete", kind, f"pyserve-{namespace}-nodes", check=False)
    shutil.rmtree(state, ignore_errors=True)


def _volume(namespace: str, folder: str) -> dict[str, Any]:
    claim = {"namespace": namespace, "name": f"state-{_CONTROLLER_POD}"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": folder},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim},
        },
    }


def _policy(namespace: str, addresses: Sequence[str]) -> dict[str, Any]:
    """Let this machine, which is not a pod of the mesh, ask its controller and replicas."""
    outside = [{"ipBlock": {"cidr": f"{each}/32"}} for each in addresses]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "tests", "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": outside}]},
    }
