"""The files of the project, as the rules see them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_SKIPPED_FOLDERS = {
    ".git", ".venv", "target", "dist", "node_modules", "__pycache__", ".hypothesis",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter_cache",
}  # fmt: skip
_BINARY_SUFFIXES = {".so", ".png", ".jpg", ".npz", ".npy", ".pyc", ".gz", ".binpb"}
# Inputs of fuzzing are bytes that mean nothing to people.
_BINARY_FOLDERS = ("router_rs/fuzz/corpus/",)


@dataclass(frozen=True)
class Source:
    """One text file: where it is below the root, with forward slashes, and what it says."""

    path: str
    text: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def generated(self) -> bool:
        """Whether its name says that a generator wrote it."""
        return "_pb2" in self.name

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def under(self, *folders: str) -> bool:
        return any(self.path.startswith(f"{folder}/") for folder in folders)


@dataclass(frozen=True, order=True)
class Finding:
    """One breach of one rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[Source], Iterator[Finding]]


def read_tree(root: Path = ROOT) -> list[Source]:
    """Read every text file below ``root`` that is not built, fetched or cached."""
    return [
        Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(_walk(root))
        if path.suffix not in _BINARY_SUFFIXES
        and not path.relative_to(root).as_posix().startswith(_BINARY_FOLDERS)
    ]


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_symlink():
            continue
        if entry.is_dir():
            if entry.name not in _SKIPPED_FOLDERS:
                yield from _walk(entry)
        elif entry.is_file():
            yield entry
