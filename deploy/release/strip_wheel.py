"""Takes the symbols out of the native library of wheels, and keeps them in a file of their own.

``python deploy/release/strip_wheel.py WHEEL... --out dist --symbols symbols`` writes each wheel to
``dist`` under its name, and to ``symbols`` what debuggers and profilers need to show functions and
lines: put it beside the installed library, whose name it has with ``.debug`` behind it (a
``.dSYM`` folder on macOS). Needs the package `wheel`, and binutils or Xcode's tools.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Strip the wheels of the command line."""
    parser = argparse.ArgumentParser(prog="strip_wheel.py", description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the stripped wheels")
    parser.add_argument("--symbols", type=Path, required=True, help="folder of their symbols")
    parser.add_argument("--objcopy", default="objcopy", help="for the wheels' processor")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for wheel in options.wheels:
        symbols = options.symbols / wheel.stem
        symbols.mkdir(parents=True, exist_ok=True)
        before = wheel.stat().st_size
        strip(wheel, options.out, symbols, options.objcopy)
        after = (options.out / wheel.name).stat().st_size
        print(f"{wheel.name}: {before / 1e6:.1f} MB, {after / 1e6:.1f} MB without its symbols")
    return 0


def strip(wheel: Path, out: Path, symbols: Path, objcopy: str = "objcopy") -> None:
    """Write the wheel to ``out``, and the symbols of its native libraries to ``symbols``."""
    with tempfile.TemporaryDirectory() as place:
        _run(sys.executable, "-m", "wheel", "unpack", str(wheel), "--dest", place)
        (tree,) = Path(place).iterdir()
        for library in sorted(tree.rglob("*.so")):
            split(library, symbols, objcopy)
        _run(sys.executable, "-m", "wheel", "pack", str(tree), "--dest-dir", str(out))


def split(library: Path, symbols: Path, objcopy: str) -> None:
    """Move the symbols of a library into ``symbols``; only what it exports stays."""
    if sys.platform == "darwin":
        _run("dsymutil", str(library), "-o", str(symbols / f"{library.name}.dSYM"))
        _run("strip", "-x", str(library))
        # A library that was changed has to be signed again, or arm64 refuses to load it.
        _run("codesign", "--force", "--sign", "-", str(library))
        return
    file = symbols / f"{library.name}.debug"
    _run(objcopy, "--only-keep-debug", "--compress-debug-sections", str(library), str(file))
    _run(objcopy, "--strip-unneeded", f"--add-gnu-debuglink={file}", str(library))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
