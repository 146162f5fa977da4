"""Interpreters with a replica's imports done, from which the next replicas start.

Most of a replica's start goes into imports. A spare has done them, and waits on a pipe for its
arguments, environment, working directory and output; then it becomes the replica. Settings that an
interpreter or a library reads while it starts cannot be changed later: a replica with other values
for these, or with its own interpreter, gets an ordinary start. A spare ends when its launcher does,
and does not count as a replica.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence

from pyserve.launch.capacity import KernelKills
from pyserve.launch.process import OnExit, Process, Restarts

_LOGGER = logging.getLogger(__name__)
# Prefixes of variables that are read at the start of an interpreter, of the dynamic linker, or of a
# library that replicas import before user code.
_READ_AT_START = (
    *("PYTHON", "LD_", "DYLD_", "GLIBC_", "MALLOC_", "LC_", "LANG", "TZ"),
    *("GRPC_", "PROTOCOL_BUFFERS_", "OPENSSL_", "UVLOOP_"),
)
# After a start: it has the processor to itself for about as long as its own imports take.
_REFILL_AFTER_S = 1.0
# What a pipe holds at once; longer messages lead to an ordinary start instead.
_TOLD_BYTES_MAX = 60_000


def fits(begun_with: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether a process with the first environment can be given the second one later."""
    return not any(
        name.startswith(_READ_AT_START) and begun_with.get(name) != wanted.get(name)
        for name in begun_with.keys() | wanted.keys()
    )


class Spare:
    """One waiting spare.

    Args:
        command: program and arguments, without those that make it a spare.
        environment: all of it.
        descriptors: inherited under the same numbers.
        token_reader: the one among them from which it will read the mesh token.
        on_line: called with each line that it writes meanwhile.
        on_exit: called if it ends meanwhile.
        kernel_kills: as of ``Process``.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
        token_reader: int,
        on_line: Callable[[str], None],
        on_exit: OnExit,
        kernel_kills: KernelKills | None = None,
    ) -> None:
        self.environment = environment
        self.token_reader = token_reader
        reader, self._writer = os.pipe()
        try:
            self.process = Process(
                [*command, "--spare-fd", str(reader)],
                environment=environment,
                working_directory=None,
                descriptors=(*descriptors, reader),
                on_line=on_line,
                on_exit=on_exit,
                kernel_kills=kernel_kills,
            )
        except BaseException:
            os.close(self._writer)
            raise
        finally:
            os.close(reader)

    def tell(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        working_directory: str | None,
        output: str | None = None,
    ) -> None:
        """Let it become a replica.

        Args:
            arguments: those of a replica.
            environment: all of it; see ``fits``.
            working_directory: where it goes; ``None``: it stays.
            output: the file that it writes to; ``None``: where it writes to now.

        Raises:
            OSError: it has ended, or the message is too long; it cannot be used any more.
        """
        told = {
            "arguments": list(arguments),
            "set": {
                name: value
                for name, value in environment.items()
                if self.environment.get(name) != value
            },
            "unset": sorted(self.environment.keys() - environment.keys()),
            "directory": working_directory,
            "output": output,
        }
        text = json.dumps(told).encode() + b"\n"
        try:
            if len(text) > _TOLD_BYTES_MAX:
                raise OSError(f"a spare cannot be told {len(text)} bytes")
            # Nothing was written there before, so this cannot block.
            os.write(self._writer, text)
        finally:
            self._close()

    def end(self) -> None:
        """Kill it without waiting and without reporting its end. Idempotent."""
        self.process.follow(lambda _: None, lambda _: None)
        self._close()
        self.process.kill()

    def _close(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


class Spares:
    """Keeps a number of spares, and replaces those that were taken.

    Args:
        count: how many; 0 for none.
        make: starts one; ``OSError`` if it cannot.
        may: returns whether this machine has room for one now.
    """

    def __init__(
        self, count: int, make: Callable[[OnExit], Spare], may: Callable[[], bool]
    ) -> None:
        self._count = count
        self._make = make
        self._may = may
        self._waiting: list[Spare] = []
        self._restarts = Restarts()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.refill_later()

    @property
    def pids(self) -> frozenset[int]:
        """The processes of the waiting spares."""
        return frozenset(spare.process.pid for spare in self._waiting)

    def take(self, environment: Mapping[str, str]) -> Spare | None:
        """Return a spare that fits that environment, if there is one; the caller owns it."""
        found = next((each for each in self._waiting if fits(each.environment, environment)), None)
        if found is not None:
            self._waiting.remove(found)
        self.refill_later()
        return found

    def refill_later(self, delay_s: float = _REFILL_AFTER_S) -> None:
        """Start what is missing, but not while replicas start: it would delay them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ended and len(self._waiting) < self._count:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._refill)

    def end(self) -> list[Process]:
        """End all of them and make no more; return their processes. Idempotent."""
        self._ended = True
        self.refill_later()
        spares, self._waiting = self._waiting, []
        for spare in spares:
            spare.end()
        return [spare.process for spare in spares]

    def _refill(self) -> None:
        """Start one, and the next one after a pause."""
        self._timer = None
        if self._may():
            self._start()
        if self._timer is None:
            self.refill_later()

    def _start(self) -> None:
        begun_at = asyncio.get_running_loop().time()

        def on_exit(summary: str) -> None:
            self._waiting[:] = [each for each in self._waiting if each is not spare]
            self._on_death(f"a spare replica {summary}", begun_at)

        try:
            spare = self._make(on_exit)
        except OSError as error:
            self._on_death(f"a spare replica cannot be started: {error}", begun_at)
        else:
            self._waiting.append(spare)

    def _on_death(self, what: str, begun_at: float) -> None:
        """Try again, later each time."""
        _LOGGER.warning("%s", what)
        lived_s = asyncio.get_running_loop().time() - begun_at
        self.refill_later(max(self._restarts.on_death(lived_s), _REFILL_AFTER_S))
