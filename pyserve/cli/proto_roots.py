"""Where imports of .proto files start: at the given folders, or at one above the file itself.

A ``.proto`` file does not say where its imports start. Most often that is the working directory or
a folder that holds all ``.proto`` files: ``protos`` where ``protos/sub/price.proto`` imports
``common.proto``. The generated modules import each other by the same paths, so that folder has to
be on Python's path, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# In each module that protoc writes.
_SOURCE = re.compile(r"^# source: (.+)$", re.MULTILINE)
_IMPORT = re.compile(r"""(?:^|;)\s*import\s+(?:(?:public|weak|option)\s+)?["']([^"']+)["']""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import of a ``.proto`` file.

    Attributes:
        file: Who imports.
        name: What it has written.
    """

    file: Path
    name: str

    def __str__(self) -> str:
        return f"{self.file} imports {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where imports start.

    Attributes:
        given: For all files; the working directory if the user has named none.
        found: More for the files below these folders, each with the reason, a clause.
    """

    given: tuple[Path, ...]
    found: Mapping[Path, str] = field(default_factory=dict)

    def of(self, file: Path) -> tuple[Path, ...]:
        """Return where imports of a file start; the first one has its modules beside it."""
        above = [root for root in self.found if _is_below(file, root)]
        return (*sorted(above, key=lambda root: -len(root.parts)), *self.given)

    def name_of(self, file: Path) -> str:
        """Return by which name others import a file."""
        return file.resolve().relative_to(self.of(file)[0].resolve()).as_posix()


def find_roots(files: Sequence[Path], shipped: Path) -> Roots:
    """Return the working directory, and the folders at which imports start that it has not.

    A folder is found if it is the only one above the file that has what the file imports, or if the
    file has been generated for imports from there: what imports it may be none of ``files``.

    Args:
        files: The ``.proto`` files; those that are not below the working directory find nothing.
        shipped: The folder of what comes with the generator, ``google/protobuf`` for example.
    """
    plain = Roots(given=(Path(),))
    found: dict[Path, str] = {}
    for each in missing_imports(files, plain, shipped):
        above = _folders_with(each)
        if len(above) == 1:
            found.setdefault(above[0], str(each))
    here = Path.cwd().resolve()
    for file in files:
        made = None if any(_is_below(file, folder) for folder in found) else made_in(file)
        if made is not None and here in made.resolve().parents:
            found[made] = f"{file} has been generated so before"
    roots = Roots(given=plain.given, found=found)
    # Nothing is guessed where the same file would get two names: half of the modules would break.
    return plain if _have_two_names(files, roots) else roots


def missing_imports(files: Iterable[Path], roots: Roots, shipped: Path) -> Iterator[Import]:
    """Yield the imports of files that neither their roots have, nor what is installed."""
    for file in files:
        # A folder above the file may be on the path for the sake of the modules in it.
        installed = [
            each for each in map(Path, filter(None, sys.path)) if not _is_below(file, each)
        ]
        for name in _imports_of(file):
            if not any((each / name).is_file() for each in (*roots.of(file), shipped, *installed)):
                yield Import(file=file, name=name)


def remedy(missing: Import, files: Sequence[Path], roots: Roots) -> str:
    """Return what to do about an import that is not found, in one line."""
    ending = f"/{missing.name}"
    others = (file for file in files if file.as_posix().endswith(ending))
    elsewhere = [Path(file.as_posix().removesuffix(ending)) for file in others]
    above = _folders_with(missing)
    if not (folders := above or elsewhere):
        return f"{missing}, which no folder here has: give -I with the folder where it starts"
    places = [folder / missing.name for folder in folders]
    if named := _named_otherwise(places, missing.name, files, roots):
        return f"{missing}, but {named}: write both from the same folder"
    if above:
        command = " or ".join(f"`pyserve proto -I {folder} {folder}`" for folder in above)
    else:
        folder, given = folders[0], " ".join(f"-I {root}" for root in roots.given)
        command = (
            f"`pyserve proto -I {folder} {folder}` and "
            f"`pyserve proto {given} -I {folder} {missing.file}`"
        )
    which = ", ".join(map(str, places))
    return f"{missing}, which is {which}: run {command}, with the same folders on PYTHONPATH"


def _named_otherwise(
    places: Iterable[Path], name: str, files: Iterable[Path], roots: Roots
) -> Import | None:
    """Return who imports one of some files by another name."""
    meant = {place.resolve() for place in places}
    imports = (Import(file=file, name=other) for file in files for other in _imports_of(file))
    for each in imports:
        found = _place_of(each, roots)
        if each.name != name and found is not None and found.resolve() in meant:
            return each
    return None


def _folders_with(missing: Import) -> list[Path]:
    """Return the folders between the working directory and a file that have what it imports."""
    here = Path.cwd().resolve()
    if not _is_below(missing.file, here):
        return []
    inner = missing.file.resolve().relative_to(here).parents
    return [folder for folder in inner if (folder / missing.name).is_file()]


def _have_two_names(files: Sequence[Path], roots: Roots) -> bool:
    own = {file.resolve() for file in files}
    for each in (Import(file=file, name=name) for file in files for name in _imports_of(file)):
        place = _place_of(each, roots)
        if place is not None and place.resolve() in own and roots.name_of(place) != each.name:
            return True
    return False


def _place_of(imported: Import, roots: Roots) -> Path | None:
    places = (root / imported.name for root in roots.of(imported.file))
    return next((each for each in places if each.is_file()), None)


def _imports_of(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    return _IMPORT.findall(_COMMENT.sub("", text))


def module_of(file: Path, root: Path) -> Path:
    """Return where protoc puts the messages of a file, without a suffix: dots are folders.

    Args:
        file: The .proto file, below the root.
        root: Where imports of it start.
    """
    inner = file.relative_to(root)
    name = f"{inner.stem.replace('-', '_')}_pb2"
    parent = Path(*(part.replace("-", "_") for part in inner.parent.parts))
    return root.joinpath(parent, *name.split("."))


def made_in(file: Path) -> Path | None:
    """Return where imports started when the stubs of a file were made; None if they were not."""
    for root in file.parents:
        module = module_of(file, root).with_suffix(".py")
        found = _SOURCE.search(module.read_text()) if module.exists() else None
        if found and found[1] == file.relative_to(root).as_posix():
            return root
    return None


def _is_below(file: Path, folder: Path) -> bool:
    return file.resolve().is_relative_to(folder.resolve())
