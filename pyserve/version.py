"""The version of pyserve, which lives in one place: the workspace manifest."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def version() -> str:
    """Return ``major.minor.patch`` of the running package.

    A source tree beside the package wins over an installed distribution, because that is the
    code which runs.
    """
    manifest = Path(__file__).parent.parent / "Cargo.toml"
    # Not at the top: commands that start a mesh never ask.
    if manifest.is_file():
        import tomllib

        workspace = tomllib.loads(manifest.read_text())["workspace"]
        return str(workspace["package"]["version"])
    import importlib.metadata

    return importlib.metadata.version("pyserve-mesh")
