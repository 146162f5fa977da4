"""Generated code asks for no newer packages than ``pyproject.toml``, which CI tries."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from deploy.release.lower_gencode import floors, lowered
from deploy.release.try_dependencies import constraints

ROOT = Path(__file__).resolve().parents[2]
GENERATED = sorted(
    file for each in ("pyserve", "services") for file in (ROOT / each).rglob("*_pb2*.py")
)
_ASKED = re.compile(r"Domain\.PUBLIC,\n +(\d+),\n +(\d+),\n +(\d+),|GENERATED_VERSION = '(.+)'")


@pytest.mark.parametrize("file", GENERATED, ids=lambda file: file.stem)
def test_generated_code_runs_with_the_oldest_that_is_allowed(file: Path) -> None:
    found = _ASKED.search(file.read_text(encoding="utf-8"))
    assert found is not None
    *of_protobuf, of_grpc = found.groups()
    name = "protobuf" if of_grpc is None else "grpcio"
    assert floors()[name] == (of_grpc or ".".join(of_protobuf))


def test_protobuf_6_is_allowed_as_clients_of_others_need_it() -> None:
    assert Version("6.31.1") == Version(floors()["protobuf"])


def test_every_direct_dependency_has_an_oldest_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {Requirement(line).name for line in project["dependencies"]}
    assert names == set(floors())
    assert names | {"grpcio-tools"} == {line.split("==")[0] for line in constraints().splitlines()}


def test_the_extra_asks_for_the_protobuf_that_its_plugin_needs() -> None:
    """Generated code refuses an older runtime; what the plugin says of itself is older."""
    spec = importlib.util.find_spec("mypy_protobuf")
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "extensions_pb2.py"
    found = _ASKED.search(file.read_text(encoding="utf-8"))
    assert found is not None
    assert Version(floors("proto")["protobuf"]) >= Version(".".join(found.groups()[:3]))
    assert f"protobuf=={floors('proto')['protobuf']}\n" in constraints()


def test_ci_tries_both_ends() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["dependencies"]["steps"]
    assert "python3 -m deploy.release.try_dependencies dist/*.whl" == steps[-1]["run"]
    assert "deploy.release.try_dependencies dist/*.whl" in (ROOT / "Makefile").read_text(
        encoding="utf-8"
    )


def test_other_code_stays_as_it_was_generated() -> None:
    text = "GRPC_GENERATED_VERSION = '1.85.1'\nGRPC_VERSION = '1.85.1'\nMAJOR = 7,\n    35,\n"
    assert text.replace("N = '1.85.1'\nG", "N = '1.74.0'\nG") == lowered(text, "6.31.1", "1.74.0")
