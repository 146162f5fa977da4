"""The reference names everything that there is, with its default."""

import dataclasses
import re
from pathlib import Path

import pytest

from pyserve.config import DeploymentOptions

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<rest>[^|]*)\|", re.MULTILINE)


def _rows(page: str) -> dict[str, str]:
    text = (ROOT / "docs" / "reference" / page).read_text()
    return {row["name"]: row["rest"].strip() for row in _ROW.finditer(text)}


def test_every_deployment_option_is_described():
    names = [field.name for field in dataclasses.fields(DeploymentOptions)]

    assert sorted(names) == sorted(_rows("deployment-options.md"))


@pytest.mark.parametrize("name", sorted(_rows("deployment-options.md")))
def test_the_default_of_an_option_is_as_described(name: str):
    described = _rows("deployment-options.md")[name]
    default = getattr(DeploymentOptions(), name)

    if dataclasses.is_dataclass(default) or (isinstance(default, dict) and default):
        # A nested default is described by its first field: `policy` p2c.
        field, value = described.replace("`", "").split(" ")
        found = default[field] if isinstance(default, dict) else getattr(default, field)
        assert value in {str(found), f"{found:g}" if isinstance(found, float) else ""}
    else:
        assert described == ("none" if default is None else str(default))


def test_every_environment_variable_is_described():
    source = (ROOT / "pyserve" / "config" / "environment.py").read_text()

    assert set(re.findall(r'"(PYSERVE_\w+)"', source)) == set(_rows("environment.md"))
