"""What a real cluster does not give: one clear message, exit 1, and nothing is left."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.mesh.commands import pyserve
from tests.mesh.on_kubernetes.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
TARGET = "tests.mesh.launchers.apps:plain"
ACCOUNT = "somebody"


@pytest.fixture
def environment(mesh_environment: dict[str, str], cluster: Cluster) -> dict[str, str]:
    """A controller outside of the cluster, which its pods reach."""
    return {**mesh_environment, "PYSERVE_ADVERTISE_HOST": cluster.own_address()}


def refused(
    environment: dict[str, str], target: str, namespace: str, image: str, *more: str
) -> str:
    """Return what a run says that cannot be."""
    options = [f"--launcher-option={each}" for each in (f"namespace={namespace}", f"image={image}")]
    begun = time.monotonic()
    done = pyserve(
        *("run", target, "--address", "127.0.0.1:0", "--launcher", "kubernetes", *options, *more),
        environment=environment,
    )
    assert 1 == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    print(f"after {time.monotonic() - begun:.1f} s: {done.stderr}")
    return done.stderr


def left(cluster: Cluster, namespace: str) -> list[str]:
    """Return what a mesh has left in a namespace."""
    found = cluster.get("pods,secrets", "-n", namespace)
    return [each["metadata"]["name"] for each in found]


def test_a_namespace_that_is_not_there_is_named(
    environment: dict[str, str], cluster: Cluster
) -> None:
    said = refused(environment, TARGET, "nowhere", cluster.image)

    assert "there is no namespace 'nowhere' in the cluster at https://" in said


def test_rights_that_are_missing_are_named(
    environment: dict[str, str], cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    inside = ("-n", namespace)
    cluster.kubectl("create", "serviceaccount", ACCOUNT, *inside)
    cluster.kubectl("create", "role", ACCOUNT, "--verb=list,watch", "--resource=pods", *inside)
    whom = f"--serviceaccount={namespace}:{ACCOUNT}"
    cluster.kubectl("create", "rolebinding", ACCOUNT, f"--role={ACCOUNT}", whom, *inside)
    token = cluster.kubectl("create", "token", ACCOUNT, *inside).strip()
    file = tmp_path / "kubeconfig.json"
    file.touch(0o600)
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    file.write_text(json.dumps(config))

    option = f"--launcher-option=kubeconfig={file}"
    said = refused(environment, TARGET, namespace, cluster.image, option)

    missing = "create pods, delete pods, get pods/log, create secrets, delete secrets"
    assert f"the launcher 'kubernetes' may not {missing} in namespace '{namespace}'" in said
    assert [] == left(cluster, namespace)


@pytest.mark.parametrize(
    ("options", "image", "said"),
    [
        ("", "nowhere.example/missing:1", "waits for its image nowhere.example/missing:1: "),
        ("ray_actor_options: {num_cpus: 4000}, ", "", "waits for a node: Unschedulable: 0/"),
    ],
)
def test_what_pods_wait_for_is_why_a_run_ends(
    options: str,
    image: str,
    said: str,
    environment: dict[str, str],
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
) -> None:
    options += "startup_timeout_s: 8, max_constructor_retry_count: 1"
    file = tmp_path / "app.yaml"
    file.write_text(
        f"applications:\n- import_path: {TARGET}\n  deployments:\n  - {{name: Plain, {options}}}\n"
    )

    assert said in refused(environment, str(file), namespace, image or cluster.image)
    cluster.eventually(lambda: [] == left(cluster, namespace))
