"""This process as a driver that has attached to a running mesh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyserve.api.context import attach
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.session import Session

if TYPE_CHECKING:
    from pathlib import Path


@contextmanager
def attached(home: Path) -> Iterator[Session]:
    """Attach to the mesh whose files are in ``home``, until the block ends."""
    address = find_mesh(read_settings({"PYSERVE_HOME": str(home)}))
    assert address is not None
    session = Session(address, None)
    attach(session)
    try:
        yield session
    finally:
        attach(None)
        session.close()
