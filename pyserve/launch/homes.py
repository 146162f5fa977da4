"""How a controller's process gets its home directory, and reports to its starter."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys

from pyserve.config import MeshSettings
from pyserve.config.launchers import PROCESS, LauncherConfig
from pyserve.control.discovery import MeshHome
from pyserve.control.home_lock import Lease
from pyserve.control.tokens import read_token
from pyserve.launch.strays import has_members


def open_home(options: argparse.Namespace, settings: MeshSettings) -> MeshHome:
    """Take the home directory, or share the keeper's.

    Args:
        options: of the command line.
        settings: which home.

    Raises:
        MeshHeld: another controller holds it.
        MeshError: it is not private, it is full, or a provided token cannot be read.
    """
    if options.lease is not None:
        return MeshHome(settings.home, lease=Lease.from_argument(options.lease))
    return MeshHome(
        settings.home,
        lasting=options.persistent,
        token=_given_token(settings) if options.persistent else b"",
        has_replicas=has_members,
    )


def can_find_again(launcher: LauncherConfig) -> bool:
    """Say whether a next controller on this machine would find the replicas of one that died."""
    if launcher.name != PROCESS or not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # A kernel before 5.3.
        return False
    return True


def report(descriptor: int | None, answer: object) -> None:
    """Report to the process that waits for the start, or on standard output."""
    text = json.dumps(answer)
    if descriptor is None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        return
    # The reader may have given up, and then does not need the answer.
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n")


def _given_token(settings: MeshSettings) -> bytes:
    """Return a token that was provided for this mesh, such as a Secret; b"": there is none."""
    path = settings.token_file
    return b"" if path is None or not path.exists() else read_token(path, "PYSERVE_TOKEN_FILE")
