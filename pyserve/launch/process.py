"""One child process: its output by lines, its end as an event, when the next one is started.

Its whole group is killed with it. It is spawned with ``subprocess`` and not with asyncio's own
transport, whose ``wait`` ends only when the pipes are closed: a grandchild that holds standard
output would hide the death of its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyserve.config.control import restart_delay_s
from pyserve.launch.capacity import KernelKills, reap
from pyserve.launch.output import LineSplitter

# Called once, in the loop's thread, when the process has ended, with how: "ended with exit
# code 1", "was killed by SIGKILL".
OnExit = Callable[[str], None]

_READ_BYTES = 65536
# What the dead wrote last is already in the pipe; this bounds the wait for its end.
_LAST_OUTPUT_TIMEOUT_S = 0.5


class Process:
    """A process in a session and group of its own.

    Args:
        command: program and arguments.
        environment: all of it.
        working_directory: where it runs; None: here.
        descriptors: inherited under the same numbers.
        on_line: called with each line of standard output and standard error, and with what
            is passing, as ``LineSplitter`` has it.
        on_exit: called once when it has ended, with how.
        kernel_kills: detects kills by the kernel; ``None``: they are not looked for.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        working_directory: str | None,
        descriptors: Sequence[int],
        on_line: Callable[[str], None],
        on_exit: OnExit,
        kernel_kills: KernelKills | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_line = on_line
        self._on_exit = on_exit
        self._last_line = ""
        self._kernel_kills = kernel_kills
        self._was_killed = False
        self._pidfd = -1
        self._splitter = LineSplitter()
        self._output_ended = asyncio.Event()
        self.ended = asyncio.Event()
        self._output, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                env=dict(environment),
                cwd=working_directory,
                pass_fds=tuple(descriptors),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(writer)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._read)
        self._watch_exit()

    @property
    def pid(self) -> int:
        """The process id, which is the group's id too."""
        return self._process.pid

    def terminate(self) -> None:
        """Ask the process to end, unless its end is known already."""
        # Not by Popen, which reaps one that has ended, before its group has been killed.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and its group, unless its end is known already."""
        self._was_killed = True
        self._kill_group()

    def _kill_group(self) -> None:
        # Until it is reaped no other process can have its number.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def follow(self, on_line: Callable[[str], None], on_exit: OnExit) -> None:
        """Report its lines and its end to these functions from now on."""
        self._on_line, self._on_exit = on_line, on_exit

    def release(self) -> subprocess.Popen[bytes]:
        """Stop watching it; the caller owns it now, and has to wait for its end.

        Raises:
            OSError: it has ended, or the caller could not watch it on this kernel.
        """
        if self._pidfd < 0:
            raise OSError(f"process {self.pid} has ended, or this kernel has no pidfd")
        self._end_watch()
        self._read()
        self._close_output()
        return self._process

    def _watch_exit(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            # Not Linux, or a kernel before 5.3.
            thread = threading.Thread(target=self._wait_in_thread, daemon=True)
            thread.start()
            return
        self._loop.add_reader(self._pidfd, self._on_pidfd)

    def _on_pidfd(self) -> None:
        self._end_watch()
        self._reap()

    def _end_watch(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1

    def _wait_in_thread(self) -> None:
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        """The process is a zombie: end what it started, then free its number."""
        self._kill_group()
        status, memory_bytes = reap(self._process)
        kernel_kills = None if self._was_killed else self._kernel_kills
        why = why_killed(status, memory_bytes, kernel_kills)
        self._reaping = self._loop.create_task(self._report(status, why))

    async def _report(self, status: int, why: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_OUTPUT_TIMEOUT_S):
                await self._output_ended.wait()
        self._close_output()
        self.ended.set()
        self._on_exit(describe_end(status, self._last_line, why))

    def _read(self) -> None:
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._pass_on(self._splitter.feed(data))
        else:
            self._close_output()

    def _close_output(self) -> None:
        if not self._output_ended.is_set():
            self._output_ended.set()
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._pass_on(self._splitter.end())

    def _pass_on(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._last_line = line.strip() or self._last_line
            self._on_line(line)


def why_killed(status: int, memory_bytes: int, kernel_kills: KernelKills | None) -> str:
    """Return why a process was likely killed, "" if that is not known.

    Args:
        status: as of ``subprocess``.
        memory_bytes: the most that it had in memory.
        kernel_kills: knows whom the kernel kills; None: it was killed from here.
    """
    if status != -signal.SIGKILL or kernel_kills is None or not kernel_kills.has_killed():
        return ""
    return (
        f", likely by the kernel for want of memory (it had {memory_bytes / 2**20:.0f} MiB at most)"
    )


def describe_end(status: int, last_line: str, why: str = "") -> str:
    """Return how a process has ended, why, and what it wrote last if that was no success."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        text = f"was killed by {name}{why}"
    else:
        text = f"ended with exit code {status}"
    return f"{text}; its last output: {last_line}" if last_line and status else text


# A process which dies on arrival costs two starts a minute at most.
DELAY_MAX_S = 30.0
# After a life of this length, a death counts as the first one again.
FORGET_AFTER_S = 60.0


class Restarts:
    """The deaths of one process and those that took its place.

    Attributes:
        deaths: in a row, none of which came after a life long enough.
    """

    def __init__(self) -> None:
        self.deaths = 0

    def on_death(self, lived_s: float, *, is_awaited: bool = False) -> float:
        """Record a death.

        Args:
            lived_s: seconds from its start.
            is_awaited: it has served, and clients wait for the next one, which starts at once after
                any number of deaths.

        Returns:
            How long to wait before the next start, in seconds.
        """
        if is_awaited:
            self.deaths = 0
            return 0.0
        self.deaths = 1 if lived_s >= FORGET_AFTER_S else self.deaths + 1
        return restart_delay_s(self.deaths, DELAY_MAX_S)


def end_in_words(pid: int, status: int) -> str:
    """Return how a process ended.

    Args:
        pid: of the process.
        status: as ``subprocess`` says it: below 0, the number of the signal that ended it.
    """
    if status >= 0:
        return f"(process {pid}) ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"(process {pid}) was ended by signal {-status} ({name})"
