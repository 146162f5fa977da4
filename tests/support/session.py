"""This process as a driver that has attached to a running mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from pyserve.api.context import attach
from pyserve.config import read_settings
from pyserve.control.discovery import find_mesh
from pyserve.driver.session import Session

if TYPE_CHECKING:
    from pathlib import Path


def attached(home: Path) -> AbstractContextManager[Session]:
    """Attach to the mesh whose files are in ``home``, until the block ends."""
    return attached_by({"PYSERVE_HOME": str(home)})


@contextmanager
def attached_by(environment: Mapping[str, str]) -> Iterator[Session]:
    """Attach to the mesh that these variables name, until the block ends."""
    address = find_mesh(read_settings(environment))
    assert address is not None
    session = Session(address, None)
    attach(session)
    try:
        yield session
    finally:
        attach(None)
        session.close()
