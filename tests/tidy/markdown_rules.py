"""Rules that read Markdown."""

import re
from collections.abc import Iterator

from tests.tidy.tree import Finding, Source

# Pages for users keep one sentence a line, so that a change of one is a change of one line.
_USER_PAGES = ("README.md", "docs/guide/", "docs/reference/", "docs/concepts/")
_PAGES_ABOUT_CODE = ("ARCHITECTURE.md", "docs/internals/")
# A new maintainer reads it whole; what needs more room has a page below docs.
_ARCHITECTURE_LINES_MAX = 200
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"# +\S")
_SENTENCE_ENDS_INSIDE = re.compile(r"(?<!\be\.)(?<!\bi\.)(?<!\bet)[a-z0-9`)\]][.!?]\)? +[A-Z`\[]")
_SOURCE_FILE = re.compile(r"`([\w/.-]+\.(?:rs|pyi?|proto|toml))`")
_FOLDER = re.compile(r"`([\w-]+(?:/[\w-]+)+)`")
_LIST_NUMBER = re.compile(r"\s*\d+\. ")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)")


def markdown_rules(source: Source, paths: frozenset[str]) -> Iterator[Finding]:
    """Apply every rule for Markdown to one file; ``paths`` are those that links may name."""
    if not source.path.endswith(".md"):
        return
    prose = list(_prose(source))
    yield from architecture_is_short(source)
    yield from one_title(source, prose)
    yield from one_sentence_a_line(source, prose)
    yield from links_resolve(source, prose, paths)
    yield from named_files_exist(source, prose, paths)


def architecture_is_short(source: Source) -> Iterator[Finding]:
    """ARCHITECTURE.md stops at 200 lines."""
    if source.path == "ARCHITECTURE.md" and len(source.lines) > _ARCHITECTURE_LINES_MAX:
        message = (
            f"{len(source.lines)} lines, at most {_ARCHITECTURE_LINES_MAX}: use docs/internals"
        )
        yield Finding(source.path, _ARCHITECTURE_LINES_MAX + 1, message)


def one_title(source: Source, prose: list[tuple[int, str]]) -> Iterator[Finding]:
    """A page has one title, and it comes first."""
    titles = [number for number, line in prose if _HEADING.match(line)]
    first = next((number for number, line in prose if line.strip()), 0)
    if titles[:1] != [first]:
        yield Finding(source.path, first, "does not begin with its title")
    for number in titles[1:]:
        yield Finding(source.path, number, "a second title: use ## below it")


def one_sentence_a_line(source: Source, prose: list[tuple[int, str]]) -> Iterator[Finding]:
    """Pages for users have one sentence a line."""
    if not source.path.startswith(_USER_PAGES):
        return
    for number, line in prose:
        text = _LIST_NUMBER.sub("", line)
        if not line.startswith("|") and _SENTENCE_ENDS_INSIDE.search(text):
            yield Finding(source.path, number, "two sentences on one line")


def links_resolve(
    source: Source, prose: list[tuple[int, str]], paths: frozenset[str]
) -> Iterator[Finding]:
    """A link inside the tree leads to a file or folder that is there."""
    folder = source.path.rpartition("/")[0]
    for number, line in prose:
        for target in _LINK.findall(line):
            path = _normal(f"{folder}/{target}")
            if path not in paths and not any(known.startswith(f"{path}/") for known in paths):
                yield Finding(source.path, number, f"the link {target} leads nowhere")


def named_files_exist(
    source: Source, prose: list[tuple[int, str]], paths: frozenset[str]
) -> Iterator[Finding]:
    """A file or folder that a page about the code names, in full or by its end, is there."""
    if not source.path.startswith(_PAGES_ABOUT_CODE):
        return
    for number, line in prose:
        for name in _SOURCE_FILE.findall(line):
            if not any(f"/{path}".endswith(f"/{name}") for path in paths):
                yield Finding(source.path, number, f"there is no {name}")
        for name in _FOLDER.findall(line):
            if not any(f"/{name}/" in f"/{path}" for path in paths):
                yield Finding(source.path, number, f"there is no folder {name}")


def _prose(source: Source) -> Iterator[tuple[int, str]]:
    inside = False
    for number, line in enumerate(source.lines, 1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def _normal(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)
