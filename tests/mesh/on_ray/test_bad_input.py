"""A cluster that is not there, or will not have us: one message, exit 1, nothing left behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.mesh.commands import pyserve
from tests.support.leftovers import SESSION_VARIABLE, processes_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
TARGET = "tests.mesh.launchers.apps:plain"


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


def test_without_ray_it_says_what_to_install(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    """Also where Ray is installed: this process finds another module of that name first."""
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError('no Ray', name='ray')\n")

    done = pyserve(
        *("run", TARGET, "--address", "127.0.0.1:0", "--launcher", "ray"),
        environment={**mesh_environment, "PYTHONPATH": str(tmp_path)},
    )

    assert (1, True) == (done.returncode, "pip install 'pyserve-mesh[ray]'" in done.stderr)
    assert "Traceback" not in done.stderr


def test_a_ray_that_does_not_fit_is_named_with_what_does(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "ray.py").write_text("__version__ = '2.9.3'\n")

    done = pyserve(
        *("run", TARGET, "--address", "127.0.0.1:0", "--launcher", "ray"),
        environment={**mesh_environment, "PYTHONPATH": str(tmp_path)},
    )

    assert 1 == done.returncode
    assert "Ray 2.9.3 is too old for the launcher 'ray'; install Ray 2.49 or later" in done.stderr
    assert "Traceback" not in done.stderr
    wait_until(lambda: not processes_of(mesh_environment[SESSION_VARIABLE]), 30)


@pytest.mark.parametrize("way", ["run", "start"])
def test_a_cluster_that_is_not_there_is_named(
    way: str, nobody: str, mesh_environment: dict[str, str]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'pyserve-mesh[ray]'")

    done = pyserve(
        *(way, *([TARGET] if way == "run" else []), "--address", "127.0.0.1:0"),
        *("--launcher", "ray", "--ray-address", nobody),
        environment={**mesh_environment, "RAY_gcs_rpc_server_connect_timeout_s": "1"},
        timeout_s=100,
    )

    assert 1 == done.returncode, done.stderr
    assert nobody in done.stderr
    assert "ray start --head" in done.stderr
    assert "Traceback" not in done.stderr
    wait_until(lambda: not processes_of(mesh_environment[SESSION_VARIABLE]), 30)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--launcher", "process", "--ray-address", "a:1"], "--ray-address needs --launcher ray"),
        (["--ray-address", "a:1"], "--ray-address needs --launcher ray"),
    ],
)
def test_an_address_belongs_to_the_launcher(
    arguments: list[str], said: str, mesh_environment: dict[str, str]
) -> None:
    done = pyserve("start", *arguments, environment=mesh_environment)

    assert (2, True) == (done.returncode, said in done.stderr)
