"""The moment in which a mesh that stays has no controller: one was killed, the next one starts.

A mesh that ends in order takes its record away, so one that is left without anybody who listens
says that a controller was killed. Commands and drivers wait for the next one, for a while.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from pyserve.control.discovery import MeshRecord, listens, read_record
from pyserve.types import MeshAddress

_RECORD = "mesh.json"
_LOOK_INTERVAL_S = 0.05  # arbitrary; a controller starts in half a second


def wait_for_next(home: Path, timeout_s: float) -> bool:
    """Block while the controller of ``home`` has been killed, and no other one listens yet.

    Returns:
        Whether one listens. It does not wait where none has been killed.

    Raises:
        MeshError: the directory cannot be read.
    """
    deadline = time.monotonic() + timeout_s
    news = threading.Event()  # Never set: files of others announce nothing.
    while read_record(home) is None:
        if not _is_left(home) or time.monotonic() >= deadline:
            return False
        news.wait(_LOOK_INTERVAL_S)
    return True


def wait_for_end(mesh: MeshAddress, timeout_s: float) -> bool:
    """Block while somebody listens where a controller did that has stopped answering.

    Returns:
        Whether nobody does any more. Of one that somebody has named it is never said: it may be on
        another machine, or the name may be wrong.
    """
    path = mesh.controller.removeprefix("unix:")
    if mesh.named_by or path == mesh.controller:
        return False
    deadline = time.monotonic() + timeout_s
    news = threading.Event()  # Never set, as above.
    while listens(path):
        if time.monotonic() >= deadline:
            return False
        news.wait(_LOOK_INTERVAL_S)
    return True


def _is_left(home: Path) -> bool:
    """Say whether a record is there of a mesh that stays, whose token outlives controllers.

    The meshes of drivers end with their controller.
    """
    try:
        record = MeshRecord.from_json((home / _RECORD).read_text())
    except (OSError, ValueError):
        return False
    return Path(record.token_file).parent == home
