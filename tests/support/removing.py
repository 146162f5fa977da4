"""Removes folders that processes look after, as somebody else may."""

import tempfile
from pathlib import Path


def remove_at_once(folder: Path) -> None:
    """Remove a folder in one step: nobody can put something into it meanwhile."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as elsewhere:
        folder.rename(Path(elsewhere) / "gone")
