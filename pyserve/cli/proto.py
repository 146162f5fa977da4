"""``pyserve proto``: generates typed Python stubs beside .proto files."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from pyserve.cli.commands import CommandFailed

# What installers put into a folder, among it .proto files of others. Those of virtual environments
# have names of all kinds, and a file that tells them.
_OF_INSTALLERS = frozenset({"node_modules", "site-packages", "__pycache__"})
_MARKS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")


@click.command(short_help="Generate Python stubs for .proto files.")
@click.argument(
    "places",
    nargs=-1,
    required=True,
    metavar="FILE|DIR...",
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "-I",
    "--include",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where imports of .proto files and Python modules start. [default: .]",
)
def proto(places: tuple[Path, ...], roots: tuple[Path, ...]) -> None:
    """Generate _pb2.py, _pb2.pyi and _pb2_grpc.py for .proto files, and all those below folders.

    Hidden folders, virtual environments and node_modules are left alone. A file that protoc
    refuses is told, and the others get their stubs.
    """
    files = list(dict.fromkeys(file for place in places for file in proto_files(place)))
    if not files:
        raise CommandFailed(f"there is no .proto file below {', '.join(map(str, places))}")
    generate_all(files, roots or (Path(),))


def proto_files(place: Path) -> Iterator[Path]:
    """Yield a file itself, or those below a folder, but for what is hidden or was installed."""
    if not place.is_dir():
        yield place
        return
    for folder, inner, names in os.walk(place):
        inner[:] = sorted(name for name in inner if _is_own(Path(folder, name)))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".proto"))


def _is_own(folder: Path) -> bool:
    name = folder.name
    return not (
        name.startswith(".")
        or name in _OF_INSTALLERS
        or any((folder / mark).exists() for mark in _MARKS_OF_ENVIRONMENTS)
    )


def generate_all(files: Sequence[Path], roots: Sequence[Path]) -> None:
    """Generate the stubs of files, each for itself, and say how it went.

    Args:
        files: The .proto files.
        roots: Where imports of .proto files start; the first one has the output beside the input.

    Raises:
        CommandFailed: Some have no stubs; the text names them.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise CommandFailed(
            "generating stubs needs grpcio-tools, which is not installed; "
            "run `pip install 'pyserve-mesh[proto]'`"
        )
    root = roots[0]
    outside = [file for file in files if not file.resolve().is_relative_to(root.resolve())]
    for file in outside:
        click.echo(
            f"{file} is not below {root}, where imports start; give -I {file.parent}", err=True
        )
    inside = [
        root / file.resolve().relative_to(root.resolve()) for file in files if file not in outside
    ]
    good = [
        file
        for file in inside
        if _protoc([f"--descriptor_set_out={os.devnull}"], [file], roots) == 0
    ]
    if good and _protoc(_outputs(root), good, roots) != 0:
        raise CommandFailed("protoc could not write; its messages above say why")
    for file in good:
        click.echo(f"pyserve: generated the stubs of {file}")
    refused = [*outside, *(file for file in inside if file not in good)]
    if refused:
        raise CommandFailed(
            f"{len(refused)} of {len(files)} files have no stubs: {', '.join(map(str, refused))}; "
            f"the messages above name the lines"
        )


def _protoc(output: Sequence[str], files: Iterable[Path], roots: Sequence[Path]) -> int:
    import grpc_tools  # type: ignore[import-untyped]  # ships no types
    from grpc_tools import protoc

    status: int = protoc.main(
        [
            "protoc",
            *(f"-I{path}" for path in roots),
            f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
            *output,
            *map(str, files),
        ]
    )
    return status


def _outputs(root: Path) -> list[str]:
    """Ask for modules and their types, of services too where mypy-protobuf is installed."""
    scripts = str(Path(sys.executable).parent)
    plugin = shutil.which("protoc-gen-mypy_grpc") or shutil.which(
        "protoc-gen-mypy_grpc", path=scripts
    )
    of_services = (
        []
        if plugin is None
        else [f"--plugin=protoc-gen-mypy_grpc={plugin}", f"--mypy_grpc_out=quiet:{root}"]
    )
    return [
        f"--python_out={root}",
        f"--grpc_python_out={root}",
        f"--pyi_out={root}",
        *of_services,
    ]
