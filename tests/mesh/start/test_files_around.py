"""Files in the working directory that are named like modules stand in nobody's way."""

from pathlib import Path

import httpx
import pytest

from tests.mesh.start.processes import END_TIMEOUT_S, address_of, command, pids

pytestmark = pytest.mark.slow

# The standard library's, a dependency's, and pyserve itself.
_NAMES = ("types.py", "select.py", "click.py", "pyserve/__init__.py")
_APPLICATION = """
import pyserve

@pyserve.deployment
def hello(request) -> str:
    return "hello"

app = hello.bind()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyserve").mkdir()
    for name in _NAMES:
        (tmp_path / name).write_text(f'raise AssertionError("{name} was imported")\n')
    (tmp_path / "greeting.py").write_text(_APPLICATION)
    return tmp_path


def _get(environment: dict[str, str]) -> str:
    return httpx.get(f"http://{address_of(environment)}/", timeout=END_TIMEOUT_S).text


def test_a_mesh_of_its_own_starts_beside_them(
    mesh_environment: dict[str, str], folder: Path
) -> None:
    address = ("--address", "127.0.0.1:0")
    with command(mesh_environment, "run", "greeting:app", *address, folder=folder) as running:
        running.shows(" is ready at ")
        assert "hello" == _get(mesh_environment)
        assert "was imported" not in running.output()


def test_controller_and_ingress_of_a_standing_mesh_start_beside_them(
    mesh_environment: dict[str, str], folder: Path
) -> None:
    address = ("--address", "127.0.0.1:0")
    with command(mesh_environment, "start", *address, folder=folder) as mesh:
        mesh.shows("the mesh is ready at ")
        assert all(pids(mesh_environment))
        with command(mesh_environment, "run", "greeting:app", folder=folder) as running:
            running.shows(" is ready at ")
            assert "hello" == _get(mesh_environment)
        assert "was imported" not in mesh.output()
