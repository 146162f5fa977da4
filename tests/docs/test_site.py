"""The documentation as a site: it builds strictly, and its links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import pyserve
from tests.docs.site import broken_links, build

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"{package} is not installed: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path):
    assert [] == broken_links(site)


@pytest.mark.slow
def test_the_site_begins_with_the_readme(site: Path):
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()


@pytest.mark.slow
def test_the_navigation_has_the_sections_of_the_list_in_its_order(site: Path):
    listed = re.findall(r"^## (.+)$", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)
    html = (site / "index.html").read_text(encoding="utf-8")
    shown = re.findall(r'<p class="caption"[^>]*><span class="caption-text">(.+?)</span>', html)
    assert listed == shown


@pytest.mark.slow
def test_the_search_knows_every_page(site: Path):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    known = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["docnames"]
    pages = {path.relative_to(ROOT).with_suffix("").as_posix() for path in _pages()}
    assert pages <= set(known)


@pytest.mark.slow
def test_the_pages_need_nothing_from_elsewhere(site: Path):
    """Scripts, styles and fonts are those of the site: it works without a network."""
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', html), page


def test_every_public_name_has_its_entry_in_the_reference():
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "docs" / "reference" / "python").glob("*.rst")
    )
    entries = set(re.findall(r"^\.\. auto\w+:: (?:pyserve\.(?:\w+\.)?)?(\w+)$", text, re.MULTILINE))
    modules = set(re.findall(r"^\.\. automodule:: pyserve\.(\w+)$", text, re.MULTILINE))
    errors = set(pyserve.exceptions.__all__) if "exceptions" in modules else set()
    assert set(pyserve.__all__) - entries - errors - modules == OTHER_MODULES


# Names of Ray Serve whose entries are on other pages.
OTHER_MODULES = {
    "batching",
    "config",
    "context",
    "grpc_util",
    "handle",
    "llm",
    "schema",
    "task_consumer",
}


@pytest.mark.parametrize(
    ("link", "broken"),
    [
        ("other.html", False),
        ("other.html#there", False),
        ("#here", False),
        ("https://example.org/missing", False),
        ("missing.html", True),
        ("other.html#missing", True),
        ("#missing", True),
    ],
)
def test_a_link_that_leads_nowhere_is_noticed(link: str, broken: bool, tmp_path: Path):
    (tmp_path / "page.html").write_text(f'<h1 id="here"></h1><a href="{link}">x</a>')
    (tmp_path / "other.html").write_text('<h1 id="there"></h1>')

    assert broken_links(tmp_path) == ([f"page.html: {link}"] if broken else [])


def _pages() -> list[Path]:
    return [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
