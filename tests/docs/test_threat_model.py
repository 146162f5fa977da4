"""Whatever the threat model names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "threat-model.md"
_COLUMNS = 6
_NOT_SHOWN = "not shown"
_BY_DESIGN = "by design"


def _lines() -> list[list[str]]:
    """Return the cells of the tables that name tests."""
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ")
    ]
    is_row = [len(each) == _COLUMNS and each[0] not in ("who", "---") for each in cells]
    return [each for each, wanted in zip(cells, is_row, strict=True) if wanted]


def _named(text: str) -> list[str]:
    return re.findall(r"`((?:tests|pyserve|router_rs|docs)/[^`]+)`", text)


def test_the_page_has_lines():
    # A change of their form would leave nothing to be checked.
    assert len(_lines()) > 50


@pytest.mark.parametrize("name", sorted({name for line in _lines() for name in _named(line[4])}))
def test_what_bounds_is_there(name: str):
    assert (ROOT / name).exists()


@pytest.mark.parametrize("name", sorted({name for line in _lines() for name in _named(line[5])}))
def test_what_shows_it_is_there(name: str):
    path, _, test = name.partition("::")
    text = (ROOT / path).read_text()

    assert re.search(rf"(def|fn) {test}\b", text) if test else "test" in text or "fuzz" in text


@pytest.mark.parametrize("line", _lines(), ids=lambda line: f"{line[0]}: {line[1]}"[:80])
def test_every_line_names_its_test_or_says_that_there_is_none(line: list[str]):
    shown = line[5]

    assert _named(shown) or shown in (_NOT_SHOWN, _BY_DESIGN), shown
