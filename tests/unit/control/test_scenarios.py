"""What the mesh does, in situations that people can read; ``script`` explains the files."""

from pathlib import Path

import pytest

from tests.unit.control.script import play

_FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
# What users of Ray Serve expect, by the files that show it.
_ROWS = {
    "drain": "G-08",
    "gangs": "G-14",
    "health": "G-09",
    "order_of_ends": "G-67",
    "rolling_update": "G-17",
    "rollout_halts": "G-18",
    "rollout_halts_in_part": "G-18",
    "scaling": "G-65",
    "start_failures": "G-16",
    "surge": "G-17",
}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.parity(_ROWS[name])] if name in _ROWS else []


@pytest.mark.parametrize(
    "file", [pytest.param(each, marks=_marks(each.stem), id=each.stem) for each in _FILES]
)
def test_the_mesh_does_what_the_scenario_says(file: Path) -> None:
    script = file.read_text(encoding="utf-8")
    assert script == play(script)


def test_every_row_has_its_file() -> None:
    assert _ROWS.keys() <= {each.stem for each in _FILES}
