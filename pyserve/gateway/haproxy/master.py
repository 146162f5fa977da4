"""Lets a running HAProxy read its configuration again: by its master's socket, or by a signal."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Protocol

from pyserve.errors import MeshError

# A master answers at once, but for the moments in which it reads its configuration.
_ANSWER_TIMEOUT_S = 10.0
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
