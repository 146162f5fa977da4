"""Keeps what leads to a running mesh: its directories, its files, the controller's Unix socket.

Cleaners of temporary folders remove them sooner or later, and a logout removes
``$XDG_RUNTIME_DIR``. They are made anew at the same paths, so that whoever knows one needs nothing
else; the streams that stand do not notice. Where that cannot be, replicas get a TCP address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pyserve.control.doors import FarDoor, NearDoor
from pyserve.errors import MeshError

_LOGGER = logging.getLogger(__name__)
# Nothing announces a removal without inotify, which Python does not have. A look takes 30 µs.
_LOOK_INTERVAL_S = 1.0


class Files(Protocol):
    """What ``MeshHome`` does for a keeper."""

    run_dir: Path

    def restore(self) -> bool:
        """Make anew what is missing; return whether something was, ``MeshError`` if it cannot."""


class Keeper:
    """Looks once a second, and before each start of a replica.

    Args:
        files: the directories and files.
        door: the controller's Unix socket, in ``files.run_dir``.
        far_door: its TCP port, which is opened where the socket cannot be.
    """

    def __init__(self, files: Files, door: NearDoor, far_door: FarDoor) -> None:
        self._files = files
        self._door = door
        self._far_door = far_door
        self._one_at_a_time = asyncio.Lock()
        self._problem = ""
        self._losses = 0

    async def keep(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Make anew what is missing, and say so once."""
        async with self._one_at_a_time:
            problem = ""
            was_missing = False
            try:
                was_missing = self._files.restore()
            except MeshError as error:
                problem = str(error)
            if not self._door.path.is_socket() and self._files.run_dir.is_dir():
                was_missing = True
                try:
                    await self._door.open()
                except (OSError, RuntimeError) as error:
                    problem = problem or f"{self._door.path} cannot be bound: {error}"
            if problem:
                problem = await self._open_far_door(problem)
        if was_missing and not problem:
            self._losses += 1
            _LOGGER.warning("%s", self._lost())
        if problem and problem != self._problem:
            _LOGGER.error("%s", self._cannot(problem))
        self._problem = problem

    async def _open_far_door(self, problem: str) -> str:
        try:
            await self._far_door.open()
        except (OSError, RuntimeError) as error:
            return f"{problem}; nor does the controller get a TCP port: {error}"
        return problem

    async def controller(self) -> str:
        """Return where a replica that starts finds the controller, which is there."""
        await self.look()
        near = self._door.path.is_socket()
        return f"unix:{self._door.path}" if near else self._far_door.address

    def notices(self) -> Sequence[str]:
        """Return what people should know, for ``pyserve status``."""
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
        far = self._far_door.address
        meanwhile = (
            f"Replicas use {far} meanwhile, but other" if far else "No replica starts; other"
        )
        return (
            f"files of this mesh in {self._files.run_dir} have been removed by somebody else, and "
            f"cannot be made anew: {problem}. {meanwhile} commands may not find this mesh"
        )
