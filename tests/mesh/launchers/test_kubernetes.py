"""The launcher of Kubernetes as users start it, on a cluster whose pods are processes here."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mesh.commands import pyserve
from tests.mesh.start.processes import END_TIMEOUT_S, command, standing, status_of
from tests.support.kubernetes_api import NAMESPACE, FakeCluster, cluster_beside, kubeconfig
from tests.support.leftovers import SESSION_VARIABLE, processes_of
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-69")]
TARGET = "tests.mesh.launchers.apps:plain"
QUOTA = 'pods "p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[FakeCluster, Path]]:
    with cluster_beside(tmp_path) as found:
        yield found


@pytest.fixture
def environment(mesh_environment: dict[str, str]) -> dict[str, str]:
    """A controller listens for other machines, of which this is one."""
    return {**mesh_environment, "PYSERVE_ADVERTISE_HOST": "127.0.0.1"}


def launcher(file: Path, **options: str) -> list[str]:
    """Return the arguments that choose the launcher."""
    given = {"kubeconfig": str(file), "image": "pyserve:1", **options}
    pairs = [f"--launcher-option={name}={value}" for name, value in given.items()]
    return ["--launcher", "kubernetes", *pairs]


def run(environment: dict[str, str], *arguments: str) -> str:
    """Return what a run says that cannot be; nothing of it is left."""
    done = pyserve("run", TARGET, "--address", "127.0.0.1:0", *arguments, environment=environment)
    assert 1 == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    wait_until(lambda: not processes_of(environment[SESSION_VARIABLE]), END_TIMEOUT_S)
    return done.stderr


def test_without_the_client_it_says_what_to_install(
    environment: dict[str, str], tmp_path: Path
) -> None:
    module = tmp_path / "kubernetes_asyncio.py"
    module.write_text("raise ModuleNotFoundError('none', name='kubernetes_asyncio')\n")

    said = run({**environment, "PYTHONPATH": str(tmp_path)}, "--launcher", "kubernetes")

    assert "pip install 'pyserve-mesh[kubernetes]'" in said


def test_a_cluster_that_is_not_there_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{held.getsockname()[1]}"
        file = tmp_path / "config"
        file.write_text(json.dumps(kubeconfig(place)))

        assert f"the Kubernetes cluster at {place} does not let us in" in run(
            environment, *launcher(file)
        )
    nowhere = run(environment, *launcher(tmp_path / "none"))
    assert "no Kubernetes cluster is known here" in nowhere


def test_a_controller_that_pods_cannot_reach_says_what_to_set(
    mesh_environment: dict[str, str], cluster: tuple[FakeCluster, Path]
) -> None:
    assert "set PYSERVE_CONTROLLER" in run(mesh_environment, *launcher(cluster[1]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"namespace": "nowhere"}, "there is no namespace 'nowhere' in the cluster at http://"),
        ({"colour": "red"}, "the launcher 'kubernetes' has no option colour; it has namespace"),
        ({"image": ""}, "has no image for its pods"),
    ],
)
def test_what_it_is_told_wrong_is_one_message(
    options: dict[str, str],
    said: str,
    environment: dict[str, str],
    cluster: tuple[FakeCluster, Path],
) -> None:
    arguments = [each for each in launcher(cluster[1], **options) if not each.endswith("image=")]

    assert said in run(environment, *arguments)


def test_rights_that_are_missing_are_named(
    environment: dict[str, str], cluster: tuple[FakeCluster, Path]
) -> None:
    fake, file = cluster
    fake.rights = {"create pods", "get pods/log"}

    said = run(environment, *launcher(file))

    assert f"may not create pods, get pods/log in namespace '{NAMESPACE}'" in said
    assert {} == fake.secrets


def test_what_the_cluster_refuses_is_told_with_its_words_and_nothing_is_left(
    environment: dict[str, str], cluster: tuple[FakeCluster, Path]
) -> None:
    fake, file = cluster
    fake.refuse = lambda _: (403, "Forbidden", QUOTA)

    said = run(environment, *launcher(file))

    assert f"the cluster refuses its pod: {QUOTA}" in said
    assert ({}, {}) == (fake.pods, fake.secrets)


def test_an_image_that_cannot_be_had_is_the_reason_of_the_deployment(
    environment: dict[str, str], cluster: tuple[FakeCluster, Path], tmp_path: Path
) -> None:
    fake, file = cluster
    told = {"reason": "ErrImagePull", "message": "not found"}
    state = {"containerStatuses": [{"name": "replica", "state": {"waiting": told}}]}
    fake.hold = lambda _: state

    done = run_with(
        "startup_timeout_s: 3, max_constructor_retry_count: 1", environment, file, tmp_path
    )

    assert 1 == done.returncode
    assert "waits for its image pyserve:1: ErrImagePull: not found" in done.stderr
    wait_until(lambda: not fake.pods, END_TIMEOUT_S)
    assert {} == fake.secrets


def test_what_no_pod_can_have_is_refused_by_name(
    environment: dict[str, str], cluster: tuple[FakeCluster, Path], tmp_path: Path
) -> None:
    fake, file = cluster

    done = run_with("ray_actor_options: {accelerator_type: T4}", environment, file, tmp_path)

    assert 1 == done.returncode
    assert "it cannot give resources.accelerator_type" in done.stderr
    assert [] == fake.created


def run_with(
    options: str, environment: dict[str, str], file: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run an application whose file has options for its deployment."""
    app = folder / "app.yaml"
    app.write_text(
        f"applications:\n- import_path: {TARGET}\n  deployments:\n  - {{name: Plain, {options}}}\n"
    )
    return pyserve(
        *("run", str(app), "--address", "127.0.0.1:0", *launcher(file)), environment=environment
    )


def phases(environment: dict[str, str]) -> list[Any]:
    deployment = status_of(environment)["applications"]["default"]["deployments"]["Plain"]
    return [each["state"] for each in deployment["replicas"]]


def test_pods_outlive_a_controller_that_is_told_to_end_and_are_found_again(
    environment: dict[str, str], cluster: tuple[FakeCluster, Path], tmp_path: Path
) -> None:
    """As when Kubernetes moves the controller's pod. `pyserve shutdown` ends them all."""
    fake, file = cluster
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("ab" * 32)
    environment = {**environment, "PYSERVE_TOKEN_FILE": str(token)}
    arguments = ("--no-ingress", *launcher(file))
    app = tmp_path / "app.yaml"
    app.write_text(f"applications:\n- import_path: {TARGET}\n")
    # The second listens where the first has; the system would give its port to others meanwhile.
    starting = {**environment, "PYSERVE_CONTROLLER": f"127.0.0.1:{free_port()}"}
    with standing(starting, *arguments):
        done = pyserve("deploy", str(app), environment=environment)
        assert 0 == done.returncode, done.stderr
        [secret] = fake.secrets
    [name] = fake.pods
    assert (["Running"], [secret]) == (
        [each["status"]["phase"] for each in fake.pods.values()],
        list(fake.secrets),
    )

    with command(starting, "start", *arguments) as again:
        again.shows("the mesh is ready")
        wait_until(lambda: "RUNNING" in phases(environment), END_TIMEOUT_S)
        assert [name] == list(fake.pods)
        assert 0 == pyserve("shutdown", environment=environment).returncode
        assert 0 == again.process.wait(END_TIMEOUT_S)

    wait_until(lambda: not fake.pods, END_TIMEOUT_S)
    assert {} == fake.secrets
