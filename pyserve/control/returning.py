"""Waits between two controllers of a mesh: one was killed, and the next one is starting.

A mesh that ends in order removes its record, so a record without a listening process shows that a
controller was killed. Commands and drivers wait for the next one, for a while.
"""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyserve.control.discovery import MeshRecord, listens, read_record
from pyserve.control.home import is_held
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


def is_silent(mesh: MeshAddress) -> bool:
    """Say whether a controller of this machine was killed, and no other one listens yet.

    One that ends in order takes its socket away.
    """
    path = mesh.controller.removeprefix("unix:")
    return path != mesh.controller and _is_socket(path) and not listens(path)


def wait_for_listener(mesh: MeshAddress, timeout_s: float) -> bool:
    """Block while ``is_silent`` holds; return whether that came to an end in time."""
    return _wait_while(lambda: is_silent(mesh), timeout_s)


def wait_for_end(mesh: MeshAddress, timeout_s: float) -> bool:
    """Block while a controller that has stopped answering still listens.

    Returns:
        Whether it has stopped listening. ``False`` for any controller that was named: it may be on
        another machine, or the name may be wrong.
    """
    path = mesh.controller.removeprefix("unix:")
    if mesh.named_by or path == mesh.controller:
        return False
    return _wait_while(lambda: listens(path), timeout_s)


def _wait_while(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Block while a condition holds; return whether it came to an end in time."""
    deadline = time.monotonic() + timeout_s
    news = threading.Event()  # Never set, as above.
    while holds():
        if time.monotonic() >= deadline:
            return False
        news.wait(_LOOK_INTERVAL_S)
    return True


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:  # Also without permission.
        return False


def _is_left(home: Path) -> bool:
    """Say whether a record is there of a mesh that gets another controller.

    The token of one that stays lies in its home; the mesh of a program has a keeper, which holds
    the home as long as there may be another one.
    """
    try:
        record = MeshRecord.from_json((home / _RECORD).read_text())
    except (OSError, ValueError):
        return False
    return Path(record.token_file).parent == home or is_held(home)
