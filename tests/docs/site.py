"""Builds the site of the documentation and follows its links.

``python -m tests.docs.site FOLDER`` does both; its exit code is 0 if all is well.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
_BUILD_TIMEOUT_S = 300.0


def build(folder: Path) -> None:
    """Write the site into ``folder``, with every warning an error.

    Raises:
        AssertionError: It could not be built; the message is what Sphinx wrote.
    """
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-E", "-a"]
    places = ["-c", "docs", "-d", str(folder / ".doctrees"), ".", str(folder)]
    done = subprocess.run(
        [*command, *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def broken_links(folder: Path) -> list[str]:
    """Return what leads to no file or anchor within a built site, a line for each."""
    pages = {path: _read(path) for path in sorted(folder.rglob("*.html"))}
    return [
        f"{path.relative_to(folder)}: {target}"
        for path, page in pages.items()
        for target in sorted(page.targets)
        if not _leads_somewhere(path, target, pages)
    ]


@dataclass
class _Page(HTMLParser):
    targets: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in {"href", "src"}:
                self.targets.add(value)
            elif value and name in {"id", "name"}:
                self.anchors.add(value)


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _leads_somewhere(path: Path, target: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return True
    file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if file not in pages:
        return file.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[file].anchors


def _findings(folder: Path) -> Iterator[str]:
    try:
        build(folder)
    except AssertionError as error:
        yield str(error)
    else:
        yield from broken_links(folder)


def main() -> int:
    """Build into the folder of the command line, and print what is wrong."""
    folder = Path(sys.argv[1]).resolve()
    findings = list(_findings(folder))
    print(*(findings or [f"The site is at {folder / 'index.html'}"]), sep="\n")
    return len(findings) > 0


if __name__ == "__main__":
    sys.exit(main())
