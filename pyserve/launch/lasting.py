"""Replicas as processes of this machine that outlive their launcher, and those of the one before.

Nothing ties such a replica to its launcher: its output goes to a file that the current launcher
follows, and its end is noticed by a pidfd, which any process may hold, not only the parent. A memo
has all that the launcher knows of it, and lets the next launcher find it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import signal
import subprocess
from collections.abc import Sequence

from pyserve.config.control import OUTPUT_READ_PERIOD_S
from pyserve.control.replicas.launching import ReplicaOrder
from pyserve.launch.capacity import KernelKills, reap
from pyserve.launch.ledger import Grant
from pyserve.launch.local import Child, LocalLauncher, Start
from pyserve.launch.output import FileChanges, OutputFile
from pyserve.launch.process import OnExit, describe_end, why_killed
from pyserve.launch.spares import Spare
from pyserve.launch.strays import (
    STRAY_TIMEOUT_S,
    Identity,
    drain,
    end_group,
    identify,
    members,
    output_of,
    value_of,
)
from pyserve.types import ReplicaId

_LOGGER = logging.getLogger(__name__)
_NAME_LENGTH = 16
_OUTPUT = "output-"


class LastingProcess:
    """A process in a group of its own, this one's child or an orphan.

    Args:
        identity: of the process.
        output: what it writes.
        on_exit: called once when it has ended, with how.
        child: its handle, if it is a child.
        kernel_kills: knows whom the kernel kills.

    Raises:
        ProcessLookupError: it has ended already.
        OSError: it cannot be watched, because this kernel has no pidfd (before 5.3).
    """

    def __init__(
        self,
        identity: Identity,
        output: OutputFile,
        on_exit: OnExit,
        child: subprocess.Popen[bytes] | None = None,
        kernel_kills: KernelKills | None = None,
    ) -> None:
        self.ended = asyncio.Event()
        self.identity = identity
        self.output = output
        self._on_exit = on_exit
        self._child = child
        self._kernel_kills = kernel_kills
        self._was_killed = False
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(identity.pid)
        # Only now the number cannot be reused unnoticed. A child keeps it until it is reaped.
        if child is None and not identity.is_alive():
            os.close(self._pidfd)
            raise ProcessLookupError(f"process {identity.pid} has ended")
        self._loop.add_reader(self._pidfd, self._on_end)

    @property
    def pid(self) -> int:
        """The process id, which is the group's id too."""
        return self.identity.pid

    def terminate(self) -> None:
        """Ask the process to end, unless its end is known already."""
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and its group, unless its end is known already."""
        self._was_killed = True
        if not self.ended.is_set():
            end_group(self.identity)

    def let_go(self) -> None:
        """Stop watching it; it goes on."""
        if not self.ended.is_set():
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self.output.close(remove=False)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # What it started goes with it; a child's number is still its own.
        end_group(self.identity)
        kernel_kills = None if self._was_killed else self._kernel_kills
        status, memory_bytes = (None, 0) if self._child is None else reap(self._child)
        self.output.close(remove=True)
        self.ended.set()
        last = self.output.last_line
        if status is not None:
            why = why_killed(status, memory_bytes, kernel_kills)
            self._on_exit(describe_end(status, last, why))
        else:
            # Only a parent is told the status.
            said = "ended with an unknown status"
            self._on_exit(f"{said}; its last output: {last}" if last else said)


class LastingLocalLauncher(LocalLauncher):
    """As ``LocalLauncher``, but its replicas go on without it; Linux only.

    They end when the pipe of ``liveness`` closes, if it was given. ``close`` ends them too;
    ``let_go`` does not.
    """

    _watcher: asyncio.Task[None] | None = None

    @functools.cached_property
    def _changes(self) -> FileChanges:
        return FileChanges()

    @functools.cached_property
    def _draining(self) -> dict[int, asyncio.Task[None]]:
        """Strays that end, by their groups."""
        return {}

    def memo(self, replica_id: ReplicaId) -> str:
        """Return what finds a replica again; see ``LastingLauncher.memo``."""
        process = self._processes.get(replica_id)
        if not isinstance(process, LastingProcess):
            return ""
        grant = self._ledger.grant_of(replica_id)
        return dataclasses.replace(process.identity, grant=grant).to_json()

    def adopt(self, order: ReplicaOrder, memo: str) -> int | None:
        """Watch a replica of another launcher; see ``LastingLauncher.adopt``."""
        identity = self._find(order.replica_id, memo)
        if identity is None:
            return None
        output = self._output(order)
        try:
            process = LastingProcess(identity, output, self._ended(order.replica_id))
        except ProcessLookupError:
            if identity.is_of_this_boot():
                end_group(identity)
            output.close(remove=True)
            return None
        self._ledger.book(order.replica_id, order.resources, identity.grant)
        self._holders[order.replica_id] = order.key, order.version
        self._add(order.replica_id, process)
        return process.pid

    def count_strays(self) -> int:
        """Return how many unknown replicas live; see ``CountsStrays``."""
        return len(_replicas_of(self._strays()))

    def end_strays(self) -> None:
        """Drain unknown replicas of this run directory; see ``LastingLauncher``."""
        loop, strays = asyncio.get_running_loop(), self._strays()
        replicas = _replicas_of(strays)
        for group in {group for _, _, group in strays} - self._draining.keys():
            # Spares that wait, and what is left of replicas that have ended, have no calls.
            timeout_s = STRAY_TIMEOUT_S if group in replicas else 0
            task = self._draining[group] = loop.create_task(drain(group, timeout_s))
            task.add_done_callback(functools.partial(self._drained, group))

    def _drained(self, group: int, _task: asyncio.Task[None]) -> None:
        self._draining.pop(group, None)

    def let_go(self) -> None:
        """Leave all replicas as they are; nothing is started or killed from here on."""
        self._spares.end()
        for preparing in self._preparing.values():
            preparing.cancel()
        for task in self._draining.values():
            task.cancel()
        self._draining.clear()
        processes = list(self._processes.values())
        self._processes.clear()
        for process in processes:
            if isinstance(process, LastingProcess):
                process.let_go()
        self._stop_watching()

    async def close(self) -> None:
        """Kill all that is left and wait for it; see ``Launcher.close``."""
        await super().close()
        for group, task in list(self._draining.items()):
            task.cancel()
            await asyncio.wait([task])
            await drain(group, 0)
        self._stop_watching()

    def _begin(self, start: Start, command: Sequence[str], token_reader: int) -> Child:
        try:
            output = self._output(start.order)
        except OSError as error:
            # The run directory cannot be recreated. A replica whose output only this launcher can
            # follow is better than none.
            _LOGGER.warning("%s writes to a pipe: %s", start.order.replica_id, error)
            return super()._begin(start, command, token_reader)
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output.descriptor,
                stderr=output.descriptor,
                env=dict(start.environment),
                cwd=start.working_directory,
                pass_fds=(token_reader, *([self._liveness_reader] if self._is_bound else [])),
                start_new_session=True,
            )
        except BaseException:
            output.close(remove=True)
            raise
        return self._watch(start, child, output)

    def _become(self, spare: Spare, start: Start) -> Child:
        output = self._output(start.order)
        try:
            spare.tell(
                self._arguments(start, spare.token_reader),
                environment=start.environment,
                working_directory=start.working_directory,
                output=str(output.path),
            )
            child = spare.process.release()
        except BaseException:
            output.close(remove=True)
            raise
        return self._watch(start, child, output)

    def _watch(
        self, start: Start, child: subprocess.Popen[bytes], output: OutputFile
    ) -> LastingProcess:
        try:
            process = LastingProcess(
                identify(child.pid, Grant()), output, start.on_exit, child, self._kernel_kills
            )
        except BaseException:
            child.kill()
            child.wait()
            output.close(remove=True)
            raise
        self._add(start.order.replica_id, process)
        return process

    def _ties(self) -> Sequence[str]:
        found = ("--lasting", str(self._run_dir))
        return (*found, *super()._ties()) if self._is_bound else found

    def _output(self, order: ReplicaOrder) -> OutputFile:
        return OutputFile(self._run_dir / _output_name(order.replica_id), self._lines_of(order))

    def _add(self, replica_id: ReplicaId, process: LastingProcess) -> None:
        self._processes[replica_id] = process
        self._changes.add(process.output.path)
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch_output())

    async def _watch_output(self) -> None:
        is_all = True
        while True:
            if is_all:
                await self._changes.wait()
            is_all = True
            for process in list(self._processes.values()):
                if isinstance(process, LastingProcess):
                    is_all &= process.output.read()
            # One that writes a line at a time is read five times a second, not at each line.
            await asyncio.sleep(OUTPUT_READ_PERIOD_S)

    def _stop_watching(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._changes.close()

    def _find(self, replica_id: ReplicaId, memo: str) -> Identity | None:
        if memo:
            try:
                return Identity.from_json(memo)
            except ValueError:  # Of another release; the process says itself who it is.
                pass
        for name, pid, group in self._running():
            with contextlib.suppress(OSError):  # It has ended meanwhile.
                if name == _output_name(replica_id) and group == pid:
                    return identify(pid, Grant())
        return None

    def _strays(self) -> list[tuple[str, int, int]]:
        names = {_output_name(replica_id) for replica_id in self._processes}
        groups = {each.pid for each in self._processes.values()} | self._spares.pids
        return [each for each in self._running() if each[0] not in names and each[2] not in groups]

    def _running(self) -> list[tuple[str, int, int]]:
        """Return the replicas of this run directory by their outputs, and what they forked.

        One that was a spare has not its name among its arguments, but writes where it was told
        to; the name of one that waits is no replica's. The last number is that of its group.
        """
        found = []
        for pid, arguments in members(self._run_dir):
            replica_id = ReplicaId(value_of("--replica-id", arguments))
            name = _output_name(replica_id) if replica_id else output_of(pid)
            with contextlib.suppress(ProcessLookupError):  # It has ended meanwhile.
                found.append((name, pid, os.getpgid(pid)))
        return found


def _replicas_of(processes: Sequence[tuple[str, int, int]]) -> set[int]:
    """Return the groups of those whose leader is a replica."""
    return {group for name, pid, group in processes if name.startswith(_OUTPUT) and pid == group}


def _output_name(replica_id: ReplicaId) -> str:
    # Names of deployments may be longer than names of files.
    return f"{_OUTPUT}{hashlib.sha256(replica_id.encode()).hexdigest()[:_NAME_LENGTH]}.log"
