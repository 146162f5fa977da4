"""Which files of one crate use which, by the paths in their code."""

import re
from collections.abc import Iterator, Sequence

from tests.tidy import rust
from tests.tidy.circles import Module
from tests.tidy.tree import Source

_TEST_MODULE = re.compile(
    r"#\[cfg\((?:a(?:ny|ll)\()?test\b[^\]]*\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([{;])"
)
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_PATH = re.compile(r"(?<![\w:])\w+(?:::\w+)+")
_VISIBILITY = re.compile(r"\bpub\(in [\w:]+\)")
_ALIAS = re.compile(r"\bas\s+\w+")
_INNERMOST = re.compile(r"([\w:]*)\{([^{}]*)\}")


class Crate:
    """The modules of a crate that are files, without those of tests and of fuzzing."""

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self._name = name
        codes = {
            _module(source.path): rust.code_only(source.text)
            for source in sources
            if source.under(f"router_rs/{name}/src") and source.path.endswith(".rs")
        }
        tests = tuple(
            (*module, found[1])
            for module, code in codes.items()
            for found in _TEST_MODULE.finditer(code)
        )
        self._codes = {
            module: _without_tests(code)
            for module, code in codes.items()
            if not any(module[: len(test)] == test for test in tests)
        }
        # A name that a module passes on belongs to the file that it comes from.
        self._passed_on = {
            (*module, path[-1]): path
            for module, code in self._codes.items()
            for public, tree in _USE.findall(code)
            for path in self._paths(module, tree)
            if public
        }

    def uses(self) -> dict[Module, set[Module]]:
        """Return which modules each one uses, all with the crate's name before their paths."""
        return {
            (self._name, *module): {(self._name, *used) for used in self._used(module, code)}
            for module, code in self._codes.items()
        }

    def _used(self, module: Module, code: str) -> Iterator[Module]:
        for public, tree in _USE.findall(code):
            for path in self._paths(module, tree):
                used = self._file_of(path)
                is_passed_on = public and used[: len(module)] == module
                # Passing on a name of one's own folder does not use it, unless it is named too.
                if used != module and (not is_passed_on or _names(code, path[-1])):
                    yield used
        for path in _PATH.findall(_VISIBILITY.sub(" ", _USE.sub(" ", code))):
            if (whole := self._whole(module, path)) and (used := self._file_of(whole)) != module:
                yield used

    def _paths(self, module: Module, tree: str) -> Iterator[Module]:
        """Yield the paths of one `use` that lead into this crate."""
        for path in _expanded(_ALIAS.sub("", tree)):
            if whole := self._whole(module, path):
                yield whole

    def _whole(self, module: Module, path: str) -> Module | None:
        """Return ``path`` from the root of the crate; None for one that leads out of it."""
        first, *rest = path.split("::")
        match first:
            case "crate":
                return tuple(rest)
            case "self":
                return (*module, *rest)
            case "super":
                above = 1 + next((i for i, part in enumerate(rest) if part != "super"), len(rest))
                return (*module[:-above], *rest[above - 1 :])
            case _:
                return (*module, first, *rest) if (*module, first) in self._codes else None

    def _file_of(self, path: Module) -> Module:
        while path in self._passed_on and self._passed_on[path] != path:
            path = self._passed_on[path]
        while path not in self._codes:
            path = path[:-1]
        return path


def _names(code: str, name: str) -> bool:
    """Say whether code has a name elsewhere than in its `use` lines."""
    return re.search(rf"(?<!\bmod )\b{name}\b", _USE.sub(" ", code)) is not None


def _module(path: str) -> Module:
    _, _, below = path.partition("/src/")
    *folders, name = below.removesuffix(".rs").split("/")
    return tuple(folders) if name in {"lib", "mod", "main"} else (*folders, name)


def _without_tests(code: str) -> str:
    for found in reversed(list(_TEST_MODULE.finditer(code))):
        end = rust.matching_brace(code, found.end() - 1) if found[2] == "{" else found.end()
        code = code[: found.start()] + code[end + 1 :]
    return code


def _expanded(tree: str) -> list[str]:
    """Return each path of ``a::{b, c::{d, e}}``."""
    tree = "".join(tree.split())
    while "{" in tree:
        tree = _INNERMOST.sub(_spread, tree)
    return [path for path in tree.split(",") if path]


def _spread(group: re.Match[str]) -> str:
    return ",".join(group[1] + branch for branch in group[2].split(",") if branch)
