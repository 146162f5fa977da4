"""Wheels that tests make, so that they install packages without an index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, source: str) -> Path:
    """Write a wheel with one module, which has the name of the package.

    Args:
        folder: Where it goes.
        name: Of package and module.
        version: Of the package.
        source: Of the module.
    """
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    facts = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", source)
        archive.writestr(
            f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{facts}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        files = [f"{name}.py", *(f"{facts}/{each}" for each in ("METADATA", "WHEEL", "RECORD"))]
        archive.writestr(f"{facts}/RECORD", "".join(f"{file},,\n" for file in files))
    return wheel
