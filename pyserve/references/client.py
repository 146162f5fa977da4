"""Takes values from other processes of this machine, over one connection to each of them."""

from __future__ import annotations

import array
import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
import mmap
import os
import secrets
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from pyserve.errors import ReferenceLost
from pyserve.references import wire
from pyserve.references.holding import map_value, on_garbage
from pyserve.references.server import peer_uid

if TYPE_CHECKING:
    from pyserve.references.process import PrivateLoop
    from pyserve.references.wire import Descriptor

_LOGGER = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5.0
_CONNECT_AGAIN_S = 0.02  # while the holder's backlog is full
_MESSAGES_PER_TURN_MAX = 64
_RIGHTS_BYTES = socket.CMSG_SPACE(array.array("i").itemsize)

Taken = concurrent.futures.Future[memoryview]


class UnreachableError(Exception):
    """The holder's socket is not here: it is gone, or this is another mount namespace."""


class Connections:
    """The connections of this process, by path. Any thread may take; finalizers may ``note``."""

    def __init__(self, loop: PrivateLoop, token: bytes) -> None:
        self._loop = loop
        self._token = token
        self._connections: dict[str, _Connection] = {}

    def take(self, descriptor: Descriptor) -> Taken:
        """Map a value of another process.

        Returns:
            A future of a read-only view. Its exceptions: ``ReferenceLost``, and
            ``UnreachableError`` where another way may lead to the holder.
        """
        self._loop.check()
        taken: Taken = concurrent.futures.Future()
        connection = self._connections.get(descriptor.unix_path)
        if connection is None or not connection.take_directly(descriptor.key, taken):
            self._loop.call(self._take, descriptor, taken)
        return taken

    def note(self, descriptor: Descriptor, kind: int, text: str) -> None:
        """Tell a holder something that needs no answer."""
        self._loop.call(self._note, descriptor, kind, text)

    def close(self) -> None:
        """Close all; on the loop."""
        for connection in list(self._connections.values()):
            connection.close(ReferenceLost("references of this process were closed"))

    def close_after_fork(self) -> None:
        """Close the descriptors in a forked child."""
        for connection in self._connections.values():
            connection.socket.close()

    def _take(self, descriptor: Descriptor, taken: Taken) -> None:
        self._connection(descriptor).take(descriptor.key, taken)

    def _note(self, descriptor: Descriptor, kind: int, text: str) -> None:
        self._connection(descriptor).send(wire.note(kind, text))

    def _connection(self, descriptor: Descriptor) -> _Connection:
        path = descriptor.unix_path
        connection = self._connections.get(path)
        if connection is None:
            connection = _Connection(self, self._loop, self._token, descriptor)
            self._connections[path] = connection
            connection.open()
        return connection

    def gone(self, path: str, connection: _Connection) -> None:
        """Forget a connection that was closed."""
        if self._connections.get(path) is connection:
            del self._connections[path]


class _Connection:
    """One connection. Everything here but ``take_directly`` runs on the loop.

    The senders bound the messages that wait to be sent: there is one request for each caller that
    waits, and one note for each value that was taken.
    """

    def __init__(
        self, owner: Connections, loop: PrivateLoop, token: bytes, descriptor: Descriptor
    ) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self._owner = owner
        self._private = loop
        self._loop = asyncio.get_running_loop()
        self._token = token
        self._holder = descriptor.holder_id
        self._path = descriptor.unix_path
        self._nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self._has_answered = False
        self._is_welcome = False
        # Held by threads that send directly, so that the socket is not closed under them.
        self._sending = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._waiting: dict[int, tuple[str, Taken]] = {}
        self._numbers = itertools.count()
        self._connect_until = self._loop.time() + _CONNECT_TIMEOUT_S
        self._timer = self._loop.call_at(self._connect_until, self._on_timeout)

    def open(self) -> None:
        """Connect; messages wait until the proof is accepted."""
        if self.socket.fileno() < 0:
            return
        try:
            self.socket.connect(self._path)
            uid = peer_uid(self.socket)
        except BlockingIOError:
            self._loop.call_later(_CONNECT_AGAIN_S, self.open)
            return
        except OSError as error:
            # Not at once: who asked for the connection has yet to say what for.
            unreachable = UnreachableError(f"{self._path}: {error}")
            self._loop.call_soon(self.close, unreachable)
            return
        if not wire.may_connect(uid, os.getuid()):
            self._loop.call_soon(self.close, UnreachableError(f"it belongs to user {uid}"))
            return
        self._loop.add_reader(self.socket, self._on_readable)

    def take_directly(self, key: str, taken: Taken) -> bool:
        """Ask for a value from any thread, without a detour through the loop's.

        Returns:
            Whether it was asked for; the answer comes to ``taken`` as always.
        """
        with self._sending:
            if not self._is_welcome or self._unsent or self.socket.fileno() < 0:
                return False
            number = next(self._numbers)
            self._waiting[number] = (key, taken)
            try:
                # Messages of this kind of socket go whole or not at all.
                self.socket.send(wire.take(number, key))
            except OSError:  # It is full, or the holder is gone.
                del self._waiting[number]
                return False
        return True

    def take(self, key: str, taken: Taken) -> None:
        """Ask for a value; on the loop."""
        number = next(self._numbers)
        self._waiting[number] = (key, taken)
        self.send(wire.take(number, key))

    def send(self, message: bytes) -> None:
        """Send a message as soon as possible; no effect on a closed connection."""
        if self.socket.fileno() < 0:
            return
        self._unsent.append(message)
        if self._is_welcome and len(self._unsent) == 1:
            self._flush()

    def close(self, error: Exception) -> None:
        """Close the connection, and fail the waiters with ``error``. Idempotent."""
        if self.socket.fileno() < 0:
            return
        self._timer.cancel()
        self._loop.remove_reader(self.socket)
        self._loop.remove_writer(self.socket)
        with self._sending:
            self.socket.close()
        self._unsent.clear()
        self._owner.gone(self._path, self)
        waiting, self._waiting = self._waiting, {}
        for _key, taken in waiting.values():
            if taken.set_running_or_notify_cancel():
                taken.set_exception(error)

    def _on_timeout(self) -> None:
        self.close(UnreachableError(f"{self._path}: no welcome within {_CONNECT_TIMEOUT_S:g} s"))

    def _flush(self) -> None:
        while self._unsent:
            try:
                self.socket.send(self._unsent[0])
            except BlockingIOError:
                self._loop.add_writer(self.socket, self._on_writable)
                return
            except OSError:
                self._loop.call_soon(self._on_end)
                return
            self._unsent.popleft()

    def _on_writable(self) -> None:
        self._loop.remove_writer(self.socket)
        self._flush()

    def _on_readable(self) -> None:
        for _ in range(_MESSAGES_PER_TURN_MAX):
            if self.socket.fileno() < 0:
                return
            try:
                message, ancillary, _flags, _address = self.socket.recvmsg(
                    wire.MESSAGE_BYTES_MAX, _RIGHTS_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                message, ancillary = b"", []
            if not message:
                self._on_end()
                return
            fd = _descriptor_of(ancillary)
            try:
                self._on_message(message, fd)
            except wire.WireError as error:
                _LOGGER.warning("the holder %s is disconnected: %s", self._holder, error)
                self._on_end()
            finally:
                if fd is not None:
                    os.close(fd)

    def _on_end(self) -> None:
        if self._is_welcome:
            self.close(ReferenceLost(f"the process {self._holder} that held the value is gone"))
        else:
            self.close(UnreachableError(f"{self._path}: it refused the connection"))

    def _on_message(self, message: bytes, fd: int | None) -> None:
        kind = wire.kind_of(message)
        if not self._has_answered:
            self._has_answered = True
            with contextlib.suppress(OSError):  # The end of the connection follows.
                self.socket.send(wire.answer(self._token, message, self._nonce))
        elif not self._is_welcome:
            if not wire.is_welcome(self._token, self._nonce, message):
                raise wire.WireError("it has not proven the mesh token")
            self._is_welcome = True
            self._timer.cancel()
            self._flush()
        elif kind == wire.TAKEN:
            self._on_taken(*wire.read_taken(message), fd)
        elif kind == wire.LOST:
            _key, taken = self._waiter(wire.read_lost(message))
            if taken.set_running_or_notify_cancel():
                text = f"the value was freed by the process {self._holder}, which held it"
                taken.set_exception(ReferenceLost(text))
        else:
            raise wire.WireError(f"a message of kind {kind} is unknown")

    def _waiter(self, number: int) -> tuple[str, Taken]:
        try:
            return self._waiting.pop(number)
        except KeyError:
            raise wire.WireError(f"an answer to request {number}, which waits for none") from None

    def _on_taken(self, number: int, size_bytes: int, fd: int | None) -> None:
        key, taken = self._waiter(number)
        dropping = wire.note(wire.DROP, key)
        try:
            mapping = _mapped(fd, size_bytes)
        except (OSError, ValueError) as error:
            self.send(dropping)
            if taken.set_running_or_notify_cancel():
                taken.set_exception(UnreachableError(f"the value could not be mapped: {error}"))
            return
        on_garbage(mapping, self._private, self.send, dropping)
        if taken.set_running_or_notify_cancel():
            taken.set_result(memoryview(mapping))


def _mapped(fd: int | None, size_bytes: int) -> mmap.mmap:
    if fd is None:
        raise OSError("no descriptor came, this process may have too many")
    return map_value(fd, size_bytes)


def _descriptor_of(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """Return the descriptor that came with a message; there is room for one."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights = array.array("i")
            rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
            if rights:
                return rights[0]
    return None
