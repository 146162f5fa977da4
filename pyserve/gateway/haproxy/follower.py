"""Keeps HAProxy's configuration that of a mesh: follows the mesh, writes the file, reloads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from pyserve.aio.certificates import MeshTls
from pyserve.aio.mesh_channel import dial, proof
from pyserve.config import NodeSettings
from pyserve.control.server.transport import RpcError
from pyserve.errors import MeshError, MeshUnavailable, PyserveError
from pyserve.gateway.haproxy.targets import HaproxyOptions, Ingresses
from pyserve.gateway.haproxy.text import configuration
from pyserve.routing.watcher import Views, ViewState, Watcher
from pyserve.types import MeshAddress
from pyserve.wire.v1 import control_pb2, control_pb2_grpc

_LOGGER = logging.getLogger(__name__)
# A controller answers in milliseconds; ten seconds cover one that is swapped out.
_ANSWER_TIMEOUT_S = 10.0
# A restarted controller has another address or token, and nothing announces that.
_LOOK_INTERVAL_S = 1.0
# Views do not show whether an ingress has been added or removed.
_REFRESH_S = 5.0


class Follower:
    """Keeps a configuration current until it is cancelled.

    Args:
        find: returns where the mesh is, ``None`` if it is nowhere at the moment. It may block.
        node: where this process is.
        tls: certificates for a controller at ``host:port``.
        options: what the configuration says besides.
        put: takes a text that differs from the last one that it took. It may block; after a
            ``MeshError`` of it the same text comes again.
        interval_s: the shortest time between two texts; what changes meanwhile comes as one.
    """

    def __init__(
        self,
        find: Callable[[], MeshAddress | None],
        node: NodeSettings,
        tls: MeshTls | None,
        options: HaproxyOptions,
        put: Callable[[str], None],
        *,
        interval_s: float,
    ) -> None:
        self._find = find
        self._node = node
        self._connect = partial(dial, tls=tls)
        self._options = options
        self._put = put
        self._interval_s = interval_s
        self._ingresses = Ingresses()
        self._last = ""
        self._said = ""

    async def run(self) -> None:
        """Follow the mesh, and then each mesh that replaces it, until cancelled."""
        while True:
            address = await self._look()
            if address is not None:
                await self._follow(address)
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def first(self) -> str:
        """Return the text for the present state of the mesh.

        Raises:
            MeshUnavailable: the controller does not answer.
            MeshError: it cannot be found, or something of it cannot be in a configuration.
        """
        address = await asyncio.to_thread(self._find)
        if address is None:
            raise MeshUnavailable("no mesh runs here")
        news = asyncio.Event()
        watched: list[ViewState] = []
        watcher = self._watcher(address, watched, news)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await news.wait()
                return await self._text(address, watched[-1].views)
        except (TimeoutError, RpcError) as error:
            raise MeshUnavailable(
                f"the controller at {address.controller} does not answer; look whether it runs "
                f"with `pyserve status`"
            ) from error
        finally:
            await watcher.close()

    def _watcher(
        self, address: MeshAddress, watched: list[ViewState], news: asyncio.Event
    ) -> Watcher:
        def on_view(state: ViewState) -> None:
            watched[:] = [state]
            news.set()

        watcher = Watcher(address, self._node, None, on_view, connect=self._connect)
        watcher.start()
        return watcher

    async def _follow(self, address: MeshAddress) -> None:
        """Follow one controller until another one is where it was."""
        news = asyncio.Event()
        watched: list[ViewState] = []
        watcher = self._watcher(address, watched, news)
        loop = asyncio.get_running_loop()
        refresh_at = math.inf
        try:
            while True:
                try:
                    async with asyncio.timeout(_LOOK_INTERVAL_S):
                        await news.wait()
                except TimeoutError:
                    if await self._has_moved(address):
                        return
                    if loop.time() < refresh_at:
                        continue
                news.clear()
                refresh_at = loop.time() + _REFRESH_S
                if not await self._update(address, watched[-1].views):
                    if await self._has_moved(address):
                        return
                    news.set()
                await asyncio.sleep(self._interval_s)
        finally:
            await watcher.close()

    async def _update(self, address: MeshAddress, views: Views) -> bool:
        """Hand on what the mesh is now; return whether that has been done."""
        try:
            text = await self._text(address, views)
            if text != self._last:
                await asyncio.to_thread(self._put, text)
                self._last = text
        except RpcError as error:
            self._say(f"the controller does not answer: {error.code().name}: {error.details()}")
            return False
        except MeshError as error:
            self._say(str(error))
            return False
        self._said = ""
        return True

    async def _text(self, address: MeshAddress, views: Views) -> str:
        async with self._connect(address.controller) as channel:
            stub = control_pb2_grpc.ControlStub(channel)
            reply: control_pb2.StatusReply = await stub.Status(
                control_pb2.StatusRequest(),
                metadata=proof(address.token),
                timeout=_ANSWER_TIMEOUT_S,
            )
        try:
            now = asyncio.get_running_loop().time()
            place = self._ingresses.place(reply, address.controller, now)
            # Others change it while this is made.
            return configuration(list(views.values()), place, self._options)
        except ValueError as error:
            raise MeshError(f"the configuration of HAProxy cannot be written: {error}") from error

    async def _has_moved(self, address: MeshAddress) -> bool:
        found = await self._look()
        return found is not None and found != address

    async def _look(self) -> MeshAddress | None:
        try:
            return await asyncio.to_thread(self._find)
        except PyserveError as error:
            self._say(str(error))
            return None

    def _say(self, text: str) -> None:
        """Log what is wrong, once for as long as it is the same."""
        if text != self._said:
            self._said = text
            _LOGGER.warning("%s; the configuration stays as it is until that has changed", text)


# The file that HAProxy reads: replaced in one step, so that no reader finds half of it.


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


# Lets a running HAProxy read its configuration again: by its master's socket, or by a signal.

_AGAIN_S = 0.1
_ANSWER_BYTES_MAX = 1024 * 1024
# Of the master's line in `show proc`, since HAProxy 2.5.
_FAILED = re.compile(r"^\d+\s+master\s+\d+\s+\[failed: (\d+)\]", re.MULTILINE)


class Reload(Protocol):
    """Makes HAProxy use the file that has been written."""

    def __call__(self) -> None:
        """Do it.

        Raises:
            MeshError: HAProxy cannot be reached, or goes on with what it had.
        """


class MasterSocket:
    """The socket of a master process, ``haproxy -W -S PATH``.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> None:
        """Reload, and check the outcome.

        Raises:
            MeshError: nobody listens there, or the configuration was refused.
        """
        answer = self._ask("reload")
        # Since 2.7 the answer has the outcome. Before, the connection ends as the master restarts.
        if "Success=1" in answer:
            return
        if "Success=0" in answer or self._has_failed():
            told = answer.partition("--\n")[2].strip()
            raise MeshError(
                f"HAProxy behind {self._path} does not take the configuration, and goes on with "
                f"the one before; look at its log, or at `haproxy -c -f FILE`"
                + (f": {told}" if told else "")
            )

    def _has_failed(self) -> bool:
        news = threading.Event()  # Never set: a restarting master announces nothing.
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        while True:
            try:
                found = _FAILED.search(self._ask("show proc"))
            except MeshError:
                found = None
                if time.monotonic() >= deadline:
                    raise
            if found is not None:
                return found[1] != "0"
            if time.monotonic() >= deadline:
                raise MeshError(
                    f"{self._path} does not say what came of the reload; is it the socket of an "
                    f"HAProxy's master (haproxy -W -S PATH), of version 2.5 or later?"
                )
            news.wait(_AGAIN_S)

    def _ask(self, command: str) -> str:
        received = b""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_ANSWER_TIMEOUT_S)
                connection.connect(str(self._path))
                connection.sendall(f"{command}\n".encode())
                connection.shutdown(socket.SHUT_WR)
                while len(received) < _ANSWER_BYTES_MAX and (piece := connection.recv(4096)):
                    received += piece
        except ConnectionResetError:
            pass  # From a restarting master; its answer has been received.
        except OSError as error:
            raise MeshError(
                f"HAProxy's master cannot be reached at {self._path}: {error}; start it with "
                f"`haproxy -W -S {self._path},mode,600 -f FILE`"
            ) from error
        return received.decode(errors="replace")


class MasterSignal:
    """A master process, by the file with its process id (``haproxy -W -p FILE``).

    Args:
        pid_file: where it is.
    """

    def __init__(self, pid_file: Path) -> None:
        self._pid_file = pid_file

    def __call__(self) -> None:
        """Send SIGUSR2; the outcome is only in HAProxy's log.

        Raises:
            MeshError: there is no such process.
        """
        try:
            pid = int(self._pid_file.read_text().split()[0])
            if pid <= 1:
                raise ValueError(f"{pid} is no process of HAProxy")
            os.kill(pid, signal.SIGUSR2)
        except (OSError, ValueError, IndexError) as error:
            raise MeshError(
                f"HAProxy's master cannot be told by {self._pid_file}: {error}; start it with "
                f"`haproxy -W -p {self._pid_file} -f FILE`"
            ) from error
