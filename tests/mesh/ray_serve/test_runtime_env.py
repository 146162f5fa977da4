"""``runtime_env`` of deployments: variables, a folder or an archive with code, packages."""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import pyserve as serve
from tests.mesh.ray_serve.apps import Flavoured
from tests.mesh.ray_serve.conftest import Run
from tests.support.wheels import make_wheel

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-68")]


def flavours(
    run: Run, runtime_env: Mapping[str, object], module: str
) -> tuple[str, str, str | None]:
    deployment = Flavoured.options(ray_actor_options={"runtime_env": runtime_env})
    found: tuple[str, str, str | None] = run(deployment.bind()).remote(module).result(timeout_s=20)
    return found


def test_a_folder_is_where_replicas_run_and_import(run_in_mesh: Run, tmp_path: Path) -> None:
    (tmp_path / "of_the_folder.py").write_text("FLAVOUR = 'folder'\n")
    runtime_env = {"working_dir": str(tmp_path), "env_vars": {"FLAVOUR": "sour"}}

    assert ("folder", str(tmp_path), "sour") == flavours(run_in_mesh, runtime_env, "of_the_folder")


def test_an_archive_is_unpacked(run_in_mesh: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("of_the_archive.py", "FLAVOUR = 'archive'\n")

    flavour, _, _ = flavours(
        run_in_mesh, {"working_dir": str(tmp_path / "code.zip")}, "of_the_archive"
    )
    assert "archive" == flavour


@pytest.mark.skipif(
    not (shutil.which("uv") or (Path(sys.executable).parent / "uv").exists()),
    reason="uv is not installed",
)
def test_packages_are_installed_for_the_deployment_alone(run_in_mesh: Run, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "of_the_wheel", "1.0", "FLAVOUR = 'wheel'\n")

    assert "wheel" == flavours(run_in_mesh, {"pip": [str(wheel)]}, "of_the_wheel")[0]
    with pytest.raises(ModuleNotFoundError):
        flavours(run_in_mesh, {}, "of_the_wheel")


def test_a_folder_that_is_not_there_fails_the_deploy(run_in_mesh: Run) -> None:
    with pytest.raises(serve.exceptions.RayServeException, match="/no-such-folder"):
        flavours(run_in_mesh, {"working_dir": "/no-such-folder"}, "anything")
