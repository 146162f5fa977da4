"""Keeps what leads to a running mesh: its directories, its files, the controller's Unix socket.

Cleaners of temporary folders remove them sooner or later, and a logout removes
``$XDG_RUNTIME_DIR``. They are made anew at the same paths, so that whoever knows one needs nothing
else; the streams that stand do not notice. Where that cannot be, replicas get the TCP address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from pyserve.control.transport import Server
from pyserve.errors import MeshError

_LOGGER = logging.getLogger(__name__)
# Nothing announces a removal without inotify, which Python does not have. A look takes 30 µs.
_LOOK_INTERVAL_S = 1.0
# The streams of a replaced socket go on until they end by themselves: a year is for ever.
_REPLACED_GRACE_S = 365.0 * 24 * 3600


class Files(Protocol):
    """What ``MeshHome`` does for a keeper."""

    run_dir: Path

    def restore(self) -> bool:
        """Make anew what is missing; return whether something was, ``MeshError`` if it cannot."""


class NearDoor:
    """The controller's Unix socket.

    A socket whose path is gone cannot get it back, so another server is started behind the same
    path, and the one before ends with its last stream.

    Args:
        path: where it is.
        make_server: makes a server with the controller's services, not started yet.
    """

    def __init__(self, path: Path, make_server: Callable[[], Server]) -> None:
        self.path = path
        self._make_server = make_server
        self._server: Server | None = None
        self._replaced: dict[asyncio.Task[None], Server] = {}
        self._count = 0

    async def open(self) -> None:
        """Listen at the path, in place of whatever is there.

        Raises:
            OSError, RuntimeError: that is not possible.
        """
        self._count += 1
        # Servers remove the path that they have bound when they end, which must not be the one
        # that their successor has.
        fresh = self.path.with_name(f"controller-{self._count}.sock")
        server = self._make_server()
        server.add_insecure_port(f"unix:{fresh}")
        await server.start()
        former, self._server = self._server, server
        if former is not None:
            ending = asyncio.create_task(former.stop(_REPLACED_GRACE_S))
            self._replaced[ending] = former
            ending.add_done_callback(self._replaced.pop)
        fresh.rename(self.path)

    async def close(self, grace_s: float) -> None:
        """End this server and those before it."""
        servers = [*self._replaced.values(), *([self._server] if self._server else [])]
        await asyncio.gather(*(server.stop(grace_s) for server in servers))
        await asyncio.gather(*self._replaced)


class Keeper:
    """Looks once a second, and before each start of a replica.

    Args:
        files: the directories and files.
        door: the controller's Unix socket, in ``files.run_dir``.
        controller_tcp: where the controller listens besides.
    """

    def __init__(self, files: Files, door: NearDoor, controller_tcp: str) -> None:
        self._files = files
        self._door = door
        self._controller_tcp = controller_tcp
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
        if was_missing and not problem:
            self._losses += 1
            _LOGGER.warning("%s", self._lost())
        if problem and problem != self._problem:
            _LOGGER.error("%s", self._cannot(problem))
        self._problem = problem

    async def controller(self) -> str:
        """Return where a replica that starts finds the controller, which is there."""
        await self.look()
        near = self._door.path.is_socket()
        return f"unix:{self._door.path}" if near else self._controller_tcp

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
        return (
            f"files of this mesh in {self._files.run_dir} have been removed by somebody else, and "
            f"cannot be made anew: {problem}. Replicas use {self._controller_tcp} meanwhile, but "
            f"other commands may not find this mesh"
        )
