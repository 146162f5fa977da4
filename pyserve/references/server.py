"""The side socket of a holder: other processes of this machine take values from it.

A connection belongs to one process. The values that it takes are counted, and given back when the
connection closes, however the process ended.
"""

from __future__ import annotations

import array
import asyncio
import logging
import os
import secrets
import shutil
import socket
import struct
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from pyserve.references import wire

if TYPE_CHECKING:
    from pyserve.references.holding import Holding, Lent

_LOGGER = logging.getLogger(__name__)

_PREFIX = "pyserve-values-"
_BACKLOG = 1024  # processes that start at once
_PEERS_MAX = 1024  # arbitrary; one for each process of the machine that takes values
_PROOF_TIMEOUT_S = 5.0
_MESSAGES_PER_TURN_MAX = 64  # so that one peer keeps no other waiting
_PATH_BYTES_MAX = 98  # with the socket's own name 105 of 107 that fit
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the process at the other end of a Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


class SideServer:
    """Listens at a path of its own; ``open`` in any thread, everything else on the loop.

    Args:
        holding: What there is to take.
        token: The mesh token, which every peer has to prove.
        run_dir: Folder for a private folder with the socket; ``None``: the temporary folder.
    """

    def __init__(self, holding: Holding, token: bytes, run_dir: Path | None) -> None:
        self.path = ""
        self._holding = holding
        self._token = token
        self._run_dir = run_dir
        self._socket: socket.socket | None = None
        self._peers: dict[int, _Peer] = {}
        self._numbers = 0

    def open(self) -> None:
        """Bind the socket, mode 0600 in a folder of mode 0700, and listen.

        Raises:
            OSError: That is not possible.
        """
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=self._run_dir)
        if len(os.fsencode(folder)) > _PATH_BYTES_MAX:
            shutil.rmtree(folder)
            folder = tempfile.mkdtemp(prefix=_PREFIX)
        # Also when the process ends without `close`; not in a fork of it.
        self._remove = weakref.finalize(self, _remove_folder, folder, os.getpid())
        path = str(Path(folder) / "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.setblocking(False)
            listener.bind(path)
            Path(path).chmod(0o600)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            self._remove()
            raise
        self._socket = listener
        self.path = path

    def start(self) -> None:
        """Begin to accept; on the loop."""
        assert self._socket is not None
        asyncio.get_running_loop().add_reader(self._socket, self._on_accept)

    def close(self) -> None:
        """Close all connections and remove the socket; on the loop. Idempotent."""
        for peer in list(self._peers.values()):
            peer.close()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._remove()

    def close_after_fork(self) -> None:
        """Close the descriptors in a forked child."""
        for connection in (self._socket, *(peer.socket for peer in self._peers.values())):
            if connection is not None:
                connection.close()

    def _on_accept(self) -> None:
        assert self._socket is not None
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as error:  # No descriptor left, or the peer is gone already.
            _LOGGER.warning("a process could not connect to take values: %s", error)
            return
        connection.setblocking(False)
        uid = peer_uid(connection)
        if not wire.may_connect(uid, os.getuid()) or len(self._peers) >= _PEERS_MAX:
            _LOGGER.warning("a process of user %d may not take values", uid)
            connection.close()
            return
        self._numbers += 1
        self._peers[self._numbers] = _Peer(self, connection, self._numbers)

    # --- for the peers ------------------------------------------------------------------

    def welcome(self, nonce: bytes, message: bytes) -> bytes | None:
        """Return the answer to a proof, ``None`` to a wrong one."""
        return wire.welcome(self._token, nonce, message)

    def lend(self, key: str, holder: int) -> Lent | None:
        """Take a value for a peer; ``None`` when it is not there."""
        try:
            return self._holding.lend(key, holder)
        except OSError as error:
            _LOGGER.warning("a value could not be given to another process: %s", error)
            return None

    def note(self, kind: int, text: str, holder: int) -> None:
        """Do what a message without an answer says."""
        if kind == wire.DROP:
            self._holding.drop(text, holder)
        elif kind == wire.FORGET:
            self._holding.forget(text)
        else:
            raise wire.WireError(f"a message of kind {kind} is unknown")

    def gone(self, number: int) -> None:
        """Give back what a peer had."""
        del self._peers[number]
        self._holding.disconnect(number)


class _Peer:
    """One connection. While messages that cannot be sent yet wait, nothing is read."""

    def __init__(self, server: SideServer, connection: socket.socket, number: int) -> None:
        self.socket = connection
        self._server = server
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self._is_proven = False
        self._unsent: tuple[bytes, Lent | None] | None = None
        self._proof_timer = self._loop.call_later(_PROOF_TIMEOUT_S, self.close)
        self._loop.add_reader(connection, self._on_readable)
        self._send(wire.challenge(self._nonce))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self.socket.fileno() < 0:
            return
        self._proof_timer.cancel()
        self._loop.remove_reader(self.socket)
        self._loop.remove_writer(self.socket)
        self.socket.close()
        if self._unsent is not None:
            _close_temporary(self._unsent[1])
        self._server.gone(self._number)

    def _on_readable(self) -> None:
        for _ in range(_MESSAGES_PER_TURN_MAX):
            if self._unsent is not None or self.socket.fileno() < 0:
                return
            try:
                message = self.socket.recv(wire.MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self.close()
                return
            try:
                self._on_message(message)
            except wire.WireError as error:
                _LOGGER.warning("a process that takes values is disconnected: %s", error)
                self.close()

    def _on_message(self, message: bytes) -> None:
        if not self._is_proven:
            reply = self._server.welcome(self._nonce, message)
            if reply is None:
                raise wire.WireError("it has not proven the mesh token")
            self._is_proven = True
            self._proof_timer.cancel()
            self._send(reply)
        elif wire.kind_of(message) == wire.TAKE:
            number, key = wire.read_take(message)
            lent = self._server.lend(key, self._number)
            if lent is None:
                self._send(wire.lost(number))
            else:
                self._send(wire.taken(number, lent.size_bytes), lent)
        else:
            self._server.note(wire.kind_of(message), wire.read_note(message), self._number)

    def _send(self, message: bytes, lent: Lent | None = None) -> None:
        ancillary = []
        if lent is not None:
            rights = array.array("i", [lent.fd])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        try:
            self.socket.sendmsg([message], ancillary)
        except BlockingIOError:
            self._unsent = (message, lent)
            self._loop.remove_reader(self.socket)
            self._loop.add_writer(self.socket, self._on_writable)
            return
        except OSError:  # It is gone.
            self._loop.call_soon(self.close)
        _close_temporary(lent)

    def _on_writable(self) -> None:
        assert self._unsent is not None
        unsent, self._unsent = self._unsent, None
        self._loop.remove_writer(self.socket)
        self._loop.add_reader(self.socket, self._on_readable)
        self._send(*unsent)


def _close_temporary(lent: Lent | None) -> None:
    if lent is not None and lent.is_temporary:
        os.close(lent.fd)


def _remove_folder(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
