"""Keeps a running mesh's directories, files, and the controller's Unix socket in place.

Cleaners of temporary folders remove them sooner or later, and a logout removes
``$XDG_RUNTIME_DIR``. They are recreated at the same paths, so that known paths stay valid; open
streams are not affected. If that is not possible, replicas get a TCP address.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from pyserve.aio.certificates import MeshTls
from pyserve.config import host_port
from pyserve.control.server.transport import LOOPBACK_PLACE, Server, TcpPlace, listen_tcp
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


# The controller's listeners: a Unix socket, and a TCP port if needed.

# The streams of a replaced socket go on until they end by themselves: a year is for ever.
_REPLACED_GRACE_S = 365.0 * 24 * 3600


class UnixListener:
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


class TcpListener:
    """The controller's TCP port: for other machines, or if the Unix socket is not possible.

    Args:
        place: where; ``None``: everything is on this machine.
        make_server: makes a server with the controller's services, not started yet.
        tls: certificates between processes; ``None``: plain.

    Attributes:
        address: what is dialled; "" until it is open.
    """

    def __init__(
        self, place: TcpPlace | None, make_server: Callable[[], Server], tls: MeshTls | None
    ) -> None:
        self.address = ""
        self._place = place or LOOPBACK_PLACE
        self._make_server = make_server
        self._tls = tls
        self._server: Server | None = None

    async def open(self) -> None:
        """Listen, unless it does already.

        Raises:
            OSError, RuntimeError: that is not possible.
        """
        if self._server is not None:
            return
        server = self._make_server()
        port = listen_tcp(server, self._place.bind, self._tls)
        await server.start()
        self._server = server
        self.address = host_port(self._place.advertised_host, port)

    async def close(self, grace_s: float) -> None:
        """End the server."""
        if self._server is not None:
            await self._server.stop(grace_s)
