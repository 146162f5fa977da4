"""What the pages for users say is what happens."""

from pathlib import Path

import pytest

from tests.docs.page import check_compiles, read_blocks, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def _is_executable(page: Path) -> bool:
    return any(block.is_console for block in read_blocks(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_python_block_compiles(page: Path):
    for block in read_blocks(page.read_text()):
        if block.language == "python":
            check_compiles(block)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", [*filter(_is_executable, PAGES)], ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path):
    assert run_page(page.read_text(), tmp_path) > 0


def test_the_quick_start_is_executed():
    assert _is_executable(ROOT / "README.md")
