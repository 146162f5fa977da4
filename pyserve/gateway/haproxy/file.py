"""The file that HAProxy reads: replaced in one step, so that no reader finds half of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from pyserve.errors import MeshError


def replace_file(path: Path, text: str) -> bool:
    """Make ``path`` hold ``text``; return ``False``, and leave it alone, if it does already.

    Raises:
        MeshError: it cannot be written; what was there stays.
    """
    try:
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            if path.read_text() == text:
                return False
        # Beside it: only within one file system a rename is one step.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), _mode(path))
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MeshError(
            f"{path} cannot be written: {error.strerror or error}; name a file in a directory that "
            f"this user may write to"
        ) from error
    return True


def _mode(path: Path) -> int:
    """Return the mode of what is replaced; of a new file, readable for HAProxy's user."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    return 0o644
