"""The site of these pages: the Markdown as it is, and the Python names from their docstrings.

README.md of this folder is the navigation: the parts of the site are its sections, in its order.
`make docs` builds with every warning an error: a page that no list names, a link and an anchor
that lead nowhere, a docstring that cannot be read.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from os.path import normpath, relpath
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
# Pages whose links are the next level of the navigation.
LISTS = {"README": "docs/README", "docs/decisions/README": "docs/decisions/README"}
_LINK = re.compile(r"\[([^\[\]]+)\]\((?!https?:|mailto:)([^)\s#]+)(?:#[^)]*)?\)")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def listed(page: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of a page with what each links to: texts and paths from the root."""
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    seen = {"README"}
    sections: list[tuple[str, list[tuple[str, str]]]] = []
    head, *parts = _SECTION.split(text)
    parts = parts or ["", head]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        entries = []
        for label, target in _LINK.findall(body):
            name, _, suffix = normpath(f"{page}/../{target}").rpartition(".")
            if suffix in {"md", "rst"} and name not in seen:
                seen.add(name)
                entries.append((label.replace("`", ""), name))
        sections.append((title, entries))
    if page == "docs/README":
        sections[-1][1].append(("All pages", page))
    return sections


def with_navigation(page: str, text: str) -> str:
    """Append to a list its hidden tables of contents."""
    for title, entries in listed(LISTS[page]) if page in LISTS else []:
        lines = [f"/{name}" if label.isdigit() else f"{label} </{name}>" for label, name in entries]
        options = [":hidden:", *([f":caption: {title}"] if title else [])]
        text += "\n".join(["\n```{toctree}", *options, "", *lines, "```\n"])
    return text


def without_folders(page: str, text: str) -> str:
    """Let links to folders lead to their README.md, or be plain text where there is none."""

    def replaced(link: re.Match[str]) -> str:
        target = (ROOT / page).parent / link[2]
        if not target.is_dir():
            return link[0]
        readme = target / "README.md"
        return (
            f"[{link[1]}]({relpath(readme, (ROOT / page).parent)})" if readme.exists() else link[1]
        )

    return _LINK.sub(replaced, text)


def _read(_app: Sphinx, page: str, content: list[str]) -> None:
    content[0] = with_navigation(page, without_folders(page, content[0]))


def _finish(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Let Sphinx read the pages through what is above."""
    app.connect("source-read", _read)
    app.connect("build-finished", _finish)


_PAGES = [f"{name}.*" for _, entries in listed("docs/README") for _, name in entries]
_MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))

project = "pyserve"
version = release = _MANIFEST["workspace"]["package"]["version"]
root_doc = "README"
include_patterns = ["README.md", "docs/**", *_PAGES]
exclude_patterns = [
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not any(page.startswith(f"{path.name}/") for page in include_patterns)
] + ["**/node_modules"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# Snippets of JSON may have an ellipsis or a comment.
suppress_warnings = ["misc.highlighting_failure"]

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "code"

html_theme = "furo"
html_title = f"pyserve {release}"
html_copy_source = False
