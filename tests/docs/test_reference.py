"""The reference names everything that there is, with its default."""

import dataclasses
import re
from pathlib import Path

import pytest

from deploy.release.reference_tables import FOLDER, TABLES, page
from pyserve.config import (
    AutoscalingConfig,
    DeploymentOptions,
    RequestRouterConfig,
    read_settings,
)
from pyserve.config.ingress import ALIASES, read_direct_settings, read_ingress_settings
from pyserve.config.routing import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
# Where variables are read that have their row in the table of the environment.
_SETTINGS = (
    "concurrency.py",
    "environment.py",
    "launchers.py",
    "logs.py",
    "telemetry.py",
    "unneeded.py",
)
_ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<rest>[^|]*)\|", re.MULTILINE)


def _rows(page: str) -> dict[str, str]:
    text = (ROOT / "docs" / "reference" / page).read_text()
    return {row["name"]: row["rest"].strip() for row in _ROW.finditer(text)}


def _knobs() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "reference" / "ingress.md").read_text()
    return {
        row["name"]: [cell.strip(" `") for cell in row["rest"].split("|")]
        for row in re.finditer(r"^\| `(?P<name>PYSERVE_\w+)` \|(?P<rest>.*)\|$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("name", sorted(_rows("deployment-options.md")))
def test_the_default_of_an_option_is_as_described(name: str):
    described = _rows("deployment-options.md")[name]
    default = getattr(DeploymentOptions(), name)

    if dataclasses.is_dataclass(default) or (isinstance(default, dict) and default):
        # A nested default is described by its first field: `policy` late_binding.
        field, value = described.replace("`", "").split(" ")
        found = default[field] if isinstance(default, dict) else getattr(default, field)
        assert value in {str(found), f"{found:g}" if isinstance(found, float) else ""}
    else:
        assert described == ("none" if default is None else str(default))


def test_every_environment_variable_is_described():
    files = (ROOT / "pyserve" / "config" / name for name in _SETTINGS)
    source = "".join(file.read_text() for file in files)

    assert set(re.findall(r'"(PYSERVE_\w+)"', source)) == set(_rows("environment.md"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.name)
def test_the_tables_are_as_the_code_declares(path: Path):
    text = path.read_text(encoding="utf-8")

    assert page(text) == text, "run make gen"


def test_every_table_has_its_place():
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md"))

    assert set(TABLES) == set(re.findall(r"<!-- make gen: (.+?) -->", text))


def test_every_option_of_routers_is_declared():
    assert [field.name for field in dataclasses.fields(RequestRouterConfig)] == list(OPTIONS)


class Asked(dict[str, str]):
    """An empty environment that remembers what was looked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.names.add(name)
        return default


def test_every_knob_of_the_ingress_is_described_with_the_name_in_ray_serve():
    asked = Asked()
    read_ingress_settings(asked)
    read_direct_settings(asked)
    rows = _knobs()

    assert asked.names == set(rows)
    elsewhere = {"PYSERVE_BIND_HOST": "RAY_SERVE_DEFAULT_HTTP_HOST"}
    assert ALIASES == {name: row[1] for name, row in rows.items() if row[1]} | elsewhere


@pytest.mark.parametrize("name", sorted(_knobs()))
def test_the_default_of_a_knob_of_the_ingress_is_as_described(name: str):
    if re.fullmatch(r"\d+|\*|EveryNode|off", default := _knobs()[name][0]):
        assert read_settings({}) == read_settings({name: default})
    else:
        assert default in {"none", "one for each core, at most 4"}


def test_every_option_of_autoscaling_is_described_with_its_default():
    # Names that warn are on the page about Ray Serve.
    fields = {field.name: field.default for field in dataclasses.fields(AutoscalingConfig)}
    rows = _rows("autoscaling.md")

    assert {name: "none" if value is None else str(value) for name, value in fields.items()} == rows
