"""One process of a persistent mesh, as its supervisor sees it.

A child reports over a pipe, in lines of JSON, where it listens, or why it cannot, and anything else
that its supervisor needs to know.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyserve.config import inherited_environment
from pyserve.errors import MeshError, MeshHeld

# The longest line on the pipe; it names a few addresses.
_LINE_BYTES_MAX = 1024 * 1024
# A process that ends at once does so within this time, or is killed.
_HURRY_TIMEOUT_S = 5.0
_HURRY_INTERVAL_S = 0.05


class Child:
    """A running process, from ``start`` on.

    Attributes:
        name: for people, such as "the ingress".
        ends_with_mesh: it has said that it ends because the mesh does.
        on_mesh_end: called when it says so.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, lines: asyncio.StreamReader
    ) -> None:
        self.name = name
        self.ends_with_mesh = False
        self.on_mesh_end: Callable[[], None] = lambda: None
        self._process = process
        self._lines = lines
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
    ) -> Child:
        """Start ``python -m module`` in a session of its own.

        Args:
            name: for people.
            module: to run, with ``--report-fd`` among its options.
            arguments: its other options.
            environment: changes to this process's environment; "" takes a variable away.
            descriptors: inherited under the same numbers.

        Raises:
            MeshError: the interpreter cannot be started.
        """
        report, writer = os.pipe()
        lines = asyncio.StreamReader(_LINE_BYTES_MAX)
        file = os.fdopen(report, "rb")
        try:
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(lines), file
            )
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, f"--report-fd={writer}", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(writer, *descriptors),
                env=_environment(environment),
                # Ctrl-C in a terminal reaches the supervisor, which then ends it in order.
                start_new_session=True,
            )
        except OSError as error:
            file.close()
            raise MeshError(f"{sys.executable} cannot be started: {error}") from error
        finally:
            os.close(writer)
        return cls(name, process, lines)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; ``None`` while it runs."""
        return self._process.returncode

    async def ready(self, timeout_s: float) -> dict[str, Any]:
        """Wait until it says that it is ready, and return what it says.

        Raises:
            MeshHeld: another mesh has the home directory, or just starts there.
            MeshError: it cannot start, or did not in time; it has ended or is killed then.
        """
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._next_line()
        except TimeoutError:
            await self.kill()
            raise MeshError(f"{self.name} did not start within {timeout_s:g} s") from None
        if answer is None:
            await self.wait()
            raise MeshError(f"{self.name} {self.how_it_ended()} while it started")
        if "error" in answer:
            await self.kill()
            raise (MeshHeld if answer.get("is_held") else MeshError)(answer["error"])
        self._reader = asyncio.create_task(self._read())
        return answer

    async def wait(self) -> int:
        """Wait for its end; return its exit status, negative for a signal."""
        status = await self._process.wait()
        if self._reader is not None:
            # Its last output is still in the pipe.
            await self._reader
        return status

    def how_it_ended(self) -> str:
        """Return its end in words; it has ended."""
        status = self._process.returncode
        assert status is not None, "it has ended"
        if status < 0:
            return f"(process {self.pid}) was ended by signal {-status} ({_signal_name(-status)})"
        return f"(process {self.pid}) ended with status {status}"

    async def end(self, timeout_s: float, hurry: asyncio.Event) -> bool:
        """Let it drain and end; kill it when it takes longer than ``timeout_s``.

        Args:
            timeout_s: seconds that it may take.
            hurry: when this is set it is told to end at once.

        Returns:
            Whether it ended by itself.
        """
        self._signal(signal.SIGTERM)
        waits = [asyncio.ensure_future(each) for each in (self._process.wait(), hurry.wait())]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self._process.returncode is None and hurry.is_set():
                await self._hurry()
        finally:
            for each in waits:
                each.cancel()
        has_ended = self._process.returncode is not None
        await self.kill()
        return has_ended

    async def kill(self) -> None:
        """Kill it, whatever its state."""
        self._signal(signal.SIGKILL)
        await self.wait()

    async def _hurry(self) -> None:
        """Have it end its own parts at once, which is how it treats a second signal.

        The signal is repeated, since two that arrive at the same time count as one.
        """
        ended = asyncio.ensure_future(self._process.wait())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HURRY_TIMEOUT_S):
                while not ended.done():
                    self._signal(signal.SIGTERM)
                    await asyncio.wait([ended], timeout=_HURRY_INTERVAL_S)
        ended.cancel()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _read(self) -> None:
        while (answer := await self._next_line()) is not None:
            if answer.get("ends") == "mesh":
                self.ends_with_mesh = True
                self.on_mesh_end()

    async def _next_line(self) -> dict[str, Any] | None:
        line = await self._lines.readline()
        if not line:
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment(changes: Mapping[str, str]) -> dict[str, str]:
    found = inherited_environment(changes)
    return {name: value for name, value in found.items() if value or name not in changes}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
