"""``pyserve run`` as it is written for Ray Serve: dots, a folder of code, an environment."""

from pathlib import Path

import httpx
import pytest

from tests.mesh.commands import foreground

pytestmark = pytest.mark.slow

_APP = """
import os
import pyserve

@pyserve.deployment
class Where:
    def __call__(self, request):
        return {"colour": os.environ["COLOUR"], "folder": os.getcwd()}

app = Where.bind()
"""


@pytest.mark.parametrize("further", [[], ["--reload"]])
def test_a_replica_is_given_what_the_command_says(
    further: list[str], mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    package = tmp_path / "code" / "stores"
    package.mkdir(parents=True)
    (package / "shop.py").write_text(_APP)
    data = tmp_path / "data"
    data.mkdir()

    with foreground(
        mesh_environment,
        "stores.shop.app",
        *("--app-dir", str(package.parent), "--working-dir", str(data)),
        *("--runtime-env-json", '{"env_vars": {"COLOUR": "red"}}'),
        *further,
    ) as running:
        answer = httpx.get(f"http://{running.address}/", timeout=30).json()

    assert {"colour": "red", "folder": str(data)} == answer
