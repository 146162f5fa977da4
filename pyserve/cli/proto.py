"""``pyserve proto``: generates typed Python stubs beside the .proto files of directories."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pyserve.cli.commands import CommandFailed


@click.command(short_help="Generate Python stubs for .proto files.")
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIR...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "-I",
    "--include",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where imports of .proto files and Python modules start. [default: .]",
)
def proto(directories: tuple[Path, ...], roots: tuple[Path, ...]) -> None:
    """Generate _pb2.py, _pb2.pyi and _pb2_grpc.py for every .proto below the directories."""
    if importlib.util.find_spec("grpc_tools") is None:
        raise CommandFailed(
            "generating stubs needs grpcio-tools, which is not installed; "
            "run `pip install grpcio-tools mypy-protobuf`"
        )
    root = roots[0] if roots else Path()
    files = sorted(file for directory in directories for file in directory.rglob("*.proto"))
    if not files:
        raise CommandFailed(f"there is no .proto file below {', '.join(map(str, directories))}")
    if generate(files, root=root, includes=roots[1:]) != 0:
        raise CommandFailed("protoc refused; its messages above name the files and lines")
    for file in files:
        click.echo(f"pyserve: generated the stubs of {file}")


def generate(files: Sequence[Path], *, root: Path, includes: Sequence[Path]) -> int:
    """Run protoc; return its exit status.

    Args:
        files: The .proto files, below ``root``.
        root: Where the modules of the output are found; output lies beside the input.
        includes: More directories for imports of .proto files.
    """
    import grpc_tools  # type: ignore[import-untyped]  # ships no types
    from grpc_tools import protoc

    command = [
        "protoc",
        *(f"-I{path}" for path in (root, *includes)),
        f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
        f"--python_out={root}",
        f"--grpc_python_out={root}",
        *_typed_output(root),
        *map(str, files),
    ]
    status: int = protoc.main(command)
    return status


def _typed_output(root: Path) -> list[str]:
    """Ask for stubs of the services too where mypy-protobuf is installed."""
    scripts = str(Path(sys.executable).parent)
    plugin = shutil.which("protoc-gen-mypy_grpc") or shutil.which(
        "protoc-gen-mypy_grpc", path=scripts
    )
    if plugin is None:
        return [f"--pyi_out={root}"]
    return [
        f"--pyi_out={root}",
        f"--plugin=protoc-gen-mypy_grpc={plugin}",
        f"--mypy_grpc_out=quiet:{root}",
    ]
