"""Commands of pyserve in processes of their own, without the imports of each.

Imports are nine tenths of what a command like ``pyserve status`` takes. So each process that runs
tests has one interpreter that has done them (``warm_interpreter.py``), and a command is a fork of
it, with the arguments, environment, folder, streams and limits that it would have had otherwise.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pyserve.launch.spares import fits

_PROGRAM = Path(__file__).with_name("warm_interpreter.py")
_ANSWER_BYTES_MAX = 64
_READ_BYTES = 65536
_IS_POSSIBLE = sys.platform == "linux"


class WarmProcess:
    """A fork of the warm interpreter, with the methods of ``subprocess.Popen``.

    Attributes:
        pid: Its process.
        returncode: As of ``Popen``; ``None`` until the end has been asked for and seen.
    """

    def __init__(self, interpreter: _Interpreter, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._interpreter = interpreter
        self._lock = threading.Lock()
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit status, or ``None`` while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status as soon as it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not, after ``timeout`` seconds.
        """
        status = self._look(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"pyserve ({self.pid})", timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            self._has_ended(timeout_s)
        with self._lock:
            if self.returncode is None and self._has_ended(0.0):
                self.returncode = self._interpreter.reap(self.pid)
                os.close(self._end)
            return self.returncode

    def _has_ended(self, timeout_s: float | None) -> bool:
        # Not `select`, which knows the first 1024 descriptors only.
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


class _Interpreter:
    """The warm interpreter of this process, started with this process's environment."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )

    def fork(self, told: Mapping[str, object], streams: Sequence[int]) -> WarmProcess:
        """Let it run a command with those three streams."""
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(told).encode()], streams)
            pid = int(self._channel.recv(_ANSWER_BYTES_MAX))
        return WarmProcess(self, pid)

    def reap(self, pid: int) -> int:
        """Return the exit status of a fork that has ended."""
        with self._lock:
            self._channel.send(json.dumps({"reap": pid}).encode())
            return int(self._channel.recv(_ANSWER_BYTES_MAX))

    def end(self) -> None:
        """End it; forks that run go on."""
        self._channel.close()
        self._process.wait()


Running = subprocess.Popen[bytes] | WarmProcess

_LOCK = threading.Lock()
_INTERPRETERS: list[_Interpreter] = []


def start_command(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    stdin: int | IO[bytes] | None = None,
    has_own_session: bool = False,
    imports_from_folder: bool = True,
) -> Running:
    """Start ``python -m pyserve arguments``.

    Args:
        arguments: Of the command line.
        environment: All of it.
        folder: Where it runs.
        stdout: A file, or its descriptor.
        stderr: Likewise.
        stdin: Likewise; by default it reads nothing.
        has_own_session: Whether it leads a session and process group.
        imports_from_folder: Whether ``folder`` is on ``sys.path``; False is Python's ``-P``.
    """
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        streams = [_number(each) for each in (nothing if stdin is None else stdin, stdout, stderr)]
        interpreter = _interpreter()
        if interpreter is not None and fits(interpreter.environment, environment):
            told = {
                "arguments": list(arguments),
                "environment": dict(environment),
                "folder": str(folder),
                "has_own_session": has_own_session,
                "imports_from_folder": imports_from_folder,
                "starter": os.getpid(),
            }
            return interpreter.fork(told, streams)
        return subprocess.Popen(
            [
                *(sys.executable, *([] if imports_from_folder else ["-P"]), "-m", "pyserve"),
                *arguments,
            ],
            cwd=folder,
            env=environment,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=has_own_session,
        )


def run_command(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    text: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m pyserve arguments`` to its end, and until nobody writes to its streams.

    Raises:
        subprocess.TimeoutExpired: It took longer.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as stack:
        (stdin, theirs_in), (out, theirs_out), (error, theirs_error) = (
            _pipe(stack, is_input=number == 0) for number in range(3)
        )
        process = start_command(
            arguments,
            environment=environment,
            folder=folder,
            stdin=theirs_in,
            stdout=theirs_out,
            stderr=theirs_error,
        )
        for each in (theirs_in, theirs_out, theirs_error):
            each.close()
        try:
            # A command that reads nothing may have ended.
            with contextlib.suppress(BrokenPipeError):
                stdin.write(text.encode())
            stdin.close()
            said = _read_all([out, error], deadline)
            status = process.wait(max(deadline - time.monotonic(), 0.0))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise subprocess.TimeoutExpired(["pyserve", *arguments], timeout_s) from None
        finally:
            process.kill()
            process.wait()
    return subprocess.CompletedProcess(["pyserve", *arguments], status, *said)


def end() -> None:
    """End the warm interpreter, if there is one."""
    with _LOCK:
        while _INTERPRETERS:
            _INTERPRETERS.pop().end()


atexit.register(end)


def _interpreter() -> _Interpreter | None:
    with _LOCK:
        if not _INTERPRETERS and _IS_POSSIBLE:
            _INTERPRETERS.append(_Interpreter())
        return _INTERPRETERS[0] if _INTERPRETERS else None


def _number(stream: int | IO[bytes]) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


def _pipe(stack: contextlib.ExitStack, *, is_input: bool) -> tuple[IO[bytes], IO[bytes]]:
    """Return our end and theirs; ``is_input``: we write."""
    reader, writer = os.pipe()
    read_end = stack.enter_context(os.fdopen(reader, "rb", buffering=0))
    write_end = stack.enter_context(os.fdopen(writer, "wb", buffering=0))
    return (write_end, read_end) if is_input else (read_end, write_end)


def _read_all(streams: Sequence[IO[bytes]], deadline: float) -> list[str]:
    """Return what comes over each until nobody can write to it.

    Raises:
        TimeoutError: Somebody still could at the deadline.
    """
    read = {each: bytearray() for each in streams}
    with selectors.DefaultSelector() as selector:
        for each in streams:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, _READ_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                stream = next(each for each in streams if each.fileno() == key.fd)
                read[stream] += chunk
    return [bytes(read[each]).decode() for each in streams]
