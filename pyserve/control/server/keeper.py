"""Keeps a running mesh's directories, files, and the controller's Unix socket in place.

Cleaners of temporary folders remove them sooner or later, and a logout removes
``$XDG_RUNTIME_DIR``. They are recreated at the same paths, so that known paths stay valid; open
streams are not affected. If that is not possible, replicas get a TCP address.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pyserve.control.server.listeners import TcpListener, UnixListener
from pyserve.errors import MeshError

_LOGGER = logging.getLogger(__name__)
# Nothing announces a removal without inotify, which Python does not have. A look takes 30 µs.
_LOOK_INTERVAL_S = 1.0


class Files(Protocol):
    """The part of ``MeshHome`` that a keeper uses."""

    run_dir: Path

    def restore(self) -> bool:
        """Recreate what is missing; say whether anything was. ``MeshError`` if that fails."""


class Keeper:
    """Looks once a second, and before each start of a replica.

    Args:
        files: the directories and files.
        unix: the controller's Unix socket, in ``files.run_dir``.
        tcp: its TCP port, which is opened where the socket cannot be, and then stays.
    """

    def __init__(self, files: Files, unix: UnixListener, tcp: TcpListener) -> None:
        self._files = files
        self._unix = unix
        self._tcp = tcp
        self._one_at_a_time = asyncio.Lock()
        self._problem = ""
        self._losses = 0

    async def keep(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Recreate what is missing. Each loss, and each lasting problem, is logged once."""
        async with self._one_at_a_time:
            was_missing, problem = await self._restore()
            if not self._has_socket():
                problem = await self._open_tcp(problem)
        if was_missing and not problem:
            self._losses += 1
            _LOGGER.warning("%s", self._lost())
        if problem and problem != self._problem:
            _LOGGER.error("%s", self._cannot(problem))
        self._problem = problem

    async def _restore(self) -> tuple[bool, str]:
        """Return whether something was missing, and why it still is."""
        was_missing, problem = False, ""
        try:
            was_missing = self._files.restore()
        except (OSError, MeshError) as error:
            problem = str(error)
        try:
            if not self._has_socket() and self._files.run_dir.is_dir():
                was_missing = True
                await self._unix.open()
        except (OSError, RuntimeError) as error:
            problem = problem or f"{self._unix.path} cannot be bound: {error}"
        return was_missing, problem

    def _has_socket(self) -> bool:
        try:
            return stat.S_ISSOCK(self._unix.path.stat().st_mode)
        except OSError:  # Also without permission, which replicas would lack too.
            return False

    async def _open_tcp(self, problem: str) -> str:
        problem = problem or f"{self._unix.path} is missing"
        try:
            await self._tcp.open()
        except (OSError, RuntimeError) as error:
            return f"{problem}; nor does the controller get a TCP port: {error}"
        return problem

    async def controller(self) -> str:
        """Return the address at which a starting replica finds the controller; it is open."""
        await self.look()
        return f"unix:{self._unix.path}" if self._has_socket() else self._tcp.address

    def notices(self) -> Sequence[str]:
        """Return notices for ``pyserve status``."""
        if self._problem:
            return (self._cannot(self._problem),)
        return (self._lost(),) if self._losses else ()

    def _lost(self) -> str:
        often = "" if self._losses == 1 else f" {self._losses} times"
        return (
            f"files of this mesh in {self._files.run_dir} have been removed{often} by somebody "
            f"else, and made anew; if a cleaner of temporary folders does that, set PYSERVE_HOME "
            f"to a directory that it leaves alone"
        )

    def _cannot(self, problem: str) -> str:
        if self._has_socket():
            effect = "Replicas are not touched, but other"
        elif self._tcp.address:
            effect = f"Replicas use {self._tcp.address} meanwhile, but other"
        else:
            effect = "No replica starts; other"
        return (
            f"files of this mesh have been removed by somebody else, and cannot be made anew: "
            f"{problem}. {effect} commands may not find this mesh"
        )
