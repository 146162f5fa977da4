"""Replicas as processes of this machine.

Each one gets a session and process group of its own, the driver's working directory and
environment, the mesh token through a pipe, and the reading end of a pipe that closes when this
process ends: no replica outlives its launcher, however that ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyserve.config import inherited_environment
from pyserve.config.capabilities import (
    BUNDLES,
    ENVIRONMENTS,
    GANGS,
    LABELS,
    SPREAD_CAPS,
    Capabilities,
)
from pyserve.config.control import PASSING
from pyserve.config.launchers import PROCESS
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.replicas.launching import Ended, Events, ReplicaOrder, Waiting
from pyserve.launch.capacity import (
    KernelKills,
    count_kernel_kills,
    machine_ledger,
    pin,
    read_stocks,
    room,
    thread_counts,
    usable_processors,
)
from pyserve.launch.environments import Environments
from pyserve.launch.ledger import Grant, Ledger, ResourcesTaken
from pyserve.launch.process import OnExit, Process
from pyserve.launch.spares import Spare, Spares
from pyserve.observe.logs.formats import with_prefix
from pyserve.types import DeploymentKey, ReplicaId

_LOGGER = logging.getLogger(__name__)
# grpcio's fork handlers start threads in the child, which crash now and then (seen with 1.85:
# SIGSEGV in one of three forks by multiprocessing). Nothing of ours uses grpcio in a child.
SAFE_FORKS = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
_KILLED_TIMEOUT_S = 5.0


class Child(Protocol):
    """A process that a launcher watches."""

    ended: asyncio.Event

    @property
    def pid(self) -> int:
        """Its id, which is its group's id too."""

    def terminate(self) -> None:
        """Ask it to end, unless its end is known already."""

    def kill(self) -> None:
        """Kill it and its group, unless its end is known already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One replica's start, with everything that was prepared for it."""

    order: ReplicaOrder
    grant: Grant
    interpreter: str
    controller: str
    environment: Mapping[str, str]
    working_directory: str | None
    on_exit: OnExit


_ONE_MACHINE = "all replicas of this mesh run on one machine"
_NEEDLESS = {
    **dict.fromkeys(BUNDLES | LABELS | SPREAD_CAPS, _ONE_MACHINE),
    "resources.memory": "nothing reserves memory; bound that of the machine or container",
    "pod_template": "replicas of this mesh run in no pods",
    "resources.accelerator_type": f"{_ONE_MACHINE}, with the devices that it has",
}
_RESERVED = {"resources.num_cpus", "resources.num_gpus", "resources.resources"}


class LocalLauncher:
    """Starts replicas with this interpreter.

    Args:
        controller: called before each start; sees to it that ``run_dir`` is there, and returns
            where the replica dials, ``unix:path`` or ``host:port``.
        token: the mesh token; it travels by pipe, never by environment or argument.
        run_dir: the mesh's directory, in which replicas put their sockets.
        on_line: called with each line that a replica writes, prefix included, and with each line
            that is about to be overwritten, which ends with ``PASSING``.
        on_output: called with each line, and who has written it.
        module: what runs; tests replace it.
        ledger: the machine's resources; by default those that can be detected.
        environments: makes what replicas need besides the driver's environment.
        spares: how many interpreters wait, with their imports done, for replicas to start.
        kernel_kills: detects kills by the kernel; by default from the kernel's counters.
        liveness: reading end of a pipe whose other end closes when all replicas must end;
            ``None``: when this process has ended.
    """

    name = PROCESS
    capabilities = Capabilities(acts_on=ENVIRONMENTS | GANGS | _RESERVED, needless=_NEEDLESS)

    def __init__(
        self,
        *,
        controller: Callable[[], Awaitable[str]],
        token: bytes,
        run_dir: Path,
        on_line: Callable[[str], None],
        on_output: Callable[[DeploymentKey, ReplicaId, str], None] = lambda *_: None,
        module: str = "pyserve.replica",
        ledger: Ledger | None = None,
        environments: Environments | None = None,
        spares: int = 0,
        kernel_kills: KernelKills | None = None,
        liveness: int | None = None,
    ) -> None:
        self._environments = environments or Environments(run_dir / "environments")
        self._controller = controller
        self._token = token
        self._run_dir = run_dir
        self._on_line = on_line
        self._on_output = on_output
        self._module = module
        self._ledger = ledger or machine_ledger(inherited_environment({}))
        self._events = Events()
        self._processes: dict[ReplicaId, Child] = {}
        # Deployment and version of the replicas that hold resources.
        self._holders: dict[ReplicaId, tuple[DeploymentKey, str]] = {}
        self._preparing: dict[ReplicaId, asyncio.Future[Any]] = {}
        self._freed = asyncio.Event()  # Replaced each time a replica has released its resources.
        self._processors = usable_processors()
        self._is_bound = liveness is not None
        if liveness is None:
            # The writing end stays in this process alone: every exec closes it.
            self._liveness_reader, self._liveness_writer = os.pipe()
        else:
            self._liveness_reader, self._liveness_writer = os.dup(liveness), -1
        self._closed = False
        self._kernel_kills = kernel_kills or KernelKills(count_kernel_kills)
        self._spares = Spares(spares, self._make_spare, lambda: not self.room().is_short)

    async def open(self) -> None:
        """See ``Launcher.open``; this machine needs no preparation."""

    async def start(self, order: ReplicaOrder) -> int:
        """Start a replica; see ``Launcher.start``."""
        try:
            return await self._start(order)
        except BaseException:
            self._environments.release(order.replica_id)
            raise

    async def _start(self, order: ReplicaOrder) -> int:
        directory, interpreter = await self._prepare(order)
        grant = await self._reserve(order)
        try:
            controller = await self._controller()
            if self._closed:
                raise OSError("the launcher is closed")
            self._kernel_kills.forget()
            start = Start(
                order=order,
                grant=grant,
                interpreter=interpreter,
                controller=controller,
                environment=self._environment(order, grant),
                working_directory=directory or None,
                on_exit=self._ended(order.replica_id),
            )
            process = self._start_by_spare(start) or self._start_anew(start)
        except BaseException:
            self._release(order.replica_id)
            raise
        self._processes[order.replica_id] = process
        return process.pid

    async def _reserve(self, order: ReplicaOrder) -> Grant:
        """Reserve a replica's resources, and wait while others hold them."""
        told = ""
        while True:
            try:
                grant = self._ledger.reserve(order.replica_id, order.resources)
            except ResourcesTaken as taken:
                if not self._may_wait(order):
                    raise
                if told != (told := taken.missed):
                    self._events.put(Waiting(order.replica_id, told))
                await self._until_freed(order.replica_id)
            else:
                self._holders[order.replica_id] = order.key, order.version
                if told:
                    self._events.put(Waiting(order.replica_id, ""))
                return grant

    def _may_wait(self, order: ReplicaOrder) -> bool:
        """Say whether another replica may release resources while a replica waits.

        Members of a gang could wait for each other, and a version for the one before it, which
        ends when the new one serves.
        """
        older = (
            key == order.key and version != order.version for key, version in self._holders.values()
        )
        return order.gang is None and not any(older)

    async def _until_freed(self, replica_id: ReplicaId) -> None:
        waiting = self._preparing[replica_id] = asyncio.ensure_future(self._freed.wait())
        try:
            await asyncio.wait({waiting})
            if waiting.cancelled():
                raise OSError("it was stopped while it waited for resources of this machine")
        finally:
            del self._preparing[replica_id]
            waiting.cancel()

    def _release(self, replica_id: ReplicaId) -> None:
        self._ledger.release(replica_id)
        self._holders.pop(replica_id, None)
        self._freed.set()
        self._freed = asyncio.Event()

    def _start_by_spare(self, start: Start) -> Child | None:
        """Let a spare become the replica, if a suitable one is there."""
        if start.interpreter != sys.executable:
            return None
        spare = self._spares.take(start.environment)
        if spare is None:
            return None
        # Before it has threads.
        pin(spare.process.pid, start.grant)
        try:
            return self._become(spare, start)
        except OSError as error:
            _LOGGER.info("replica %s is started anew: %s", start.order.replica_id, error)
            spare.end()
            return None

    def _start_anew(self, start: Start) -> Child:
        token_reader = self._token_pipe()
        try:
            command = [start.interpreter, *self._program(), *self._arguments(start, token_reader)]
            process = self._begin(start, command, token_reader)
        finally:
            os.close(token_reader)
        pin(process.pid, start.grant)
        return process

    def _make_spare(self, on_exit: OnExit) -> Spare:
        token_reader = self._token_pipe()
        try:
            return Spare(
                [sys.executable, *self._program(), *self._ties()],
                environment=replica_environment({}, self._run_dir),
                descriptors=(token_reader, self._liveness_reader),
                token_reader=token_reader,
                on_line=lambda line: self._on_line(with_prefix("[spare] ", line)),
                on_exit=on_exit,
                kernel_kills=self._kernel_kills,
            )
        finally:
            os.close(token_reader)

    def _become(self, spare: Spare, start: Start) -> Child:
        spare.tell(
            self._arguments(start, spare.token_reader),
            environment=start.environment,
            working_directory=start.working_directory,
        )
        spare.process.follow(self._lines_of(start.order), start.on_exit)
        return spare.process

    def _begin(self, start: Start, command: Sequence[str], token_reader: int) -> Child:
        return Process(
            command,
            environment=start.environment,
            working_directory=start.working_directory,
            descriptors=(token_reader, self._liveness_reader),
            on_line=self._lines_of(start.order),
            on_exit=start.on_exit,
            kernel_kills=self._kernel_kills,
        )

    def _ties(self) -> Sequence[str]:
        """Return the arguments that say how a replica depends on this launcher."""
        return ("--liveness-fd", str(self._liveness_reader))

    def _lines_of(self, order: ReplicaOrder) -> Callable[[str], None]:
        return line_taker(order, self._on_line, self._on_output)

    def _ended(self, replica_id: ReplicaId) -> OnExit:
        def ended(summary: str) -> None:
            self._processes.pop(replica_id, None)
            self._release(replica_id)
            self._environments.release(replica_id)
            self._events.put(Ended(replica_id, summary))

        return ended

    async def _prepare(self, order: ReplicaOrder) -> tuple[str, str]:
        """Return folder and interpreter of a replica; ``stop`` ends the wait for them."""

        async def prepare() -> tuple[str, str]:
            directory = await self._environments.directory(
                order.working_directory, order.replica_id
            )
            return directory, await self._environments.interpreter(order.requirements)

        preparing: asyncio.Future[tuple[str, str]] = asyncio.ensure_future(prepare())
        self._preparing[order.replica_id] = preparing
        try:
            await asyncio.wait({preparing})
            if preparing.cancelled():
                raise OSError("it was stopped while what its runtime_env names was made")
            return preparing.result()
        finally:
            del self._preparing[order.replica_id]
            preparing.cancel()

    def room(self) -> Room:
        """Return how many may start at a time; see ``Launcher.room``."""
        return room(self._processors, read_stocks(), running=len(self._processes))

    def spare_pids(self) -> frozenset[int]:
        """Return the processes that wait for replicas to start."""
        return self._spares.pids

    def watch(self) -> Events:
        """Return the events of replicas; see ``Launcher.watch``."""
        return self._events

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """End the replica and its group; see ``Launcher.stop``."""
        if (preparing := self._preparing.get(replica_id)) is not None:
            preparing.cancel()
        process = self._processes.get(replica_id)
        if process is None:
            return
        if grace_s > 0:
            process.terminate()
            asyncio.get_running_loop().call_later(grace_s, process.kill)
        else:
            process.kill()

    async def close(self) -> None:
        """Kill all that is left and wait for it; see ``Launcher.close``."""
        if self._closed:
            return
        self._closed = True
        for preparing in self._preparing.values():
            preparing.cancel()
        left = [*self._processes.values(), *self._spares.end()]
        self._environments.stop()
        for process in left:
            process.kill()
        try:
            async with asyncio.timeout(_KILLED_TIMEOUT_S):
                for process in left:
                    await process.ended.wait()
        finally:
            self._events.close()
            self._environments.close()
        if self._liveness_writer >= 0:
            os.close(self._liveness_writer)
        os.close(self._liveness_reader)

    def _program(self) -> Sequence[str]:
        # -P: the working directory is not put before the standard library while the
        # interpreter starts; the replica takes the driver's own sys.path later.
        return ("-P", "-m", self._module)

    def _arguments(self, start: Start, token_reader: int) -> Sequence[str]:
        return [
            *start.order.arguments(start.controller),
            *("--token-fd", str(token_reader)),
            *self._ties(),
        ]

    def _environment(self, order: ReplicaOrder, grant: Grant) -> dict[str, str]:
        return {
            **thread_counts(order.resources),
            **replica_environment(order.environment, self._run_dir),
            **({"CUDA_VISIBLE_DEVICES": ",".join(grant.gpus)} if grant.gpus else {}),
        }

    def _token_pipe(self) -> int:
        reader, writer = os.pipe()
        # A token is far smaller than a pipe's buffer, so this cannot block.
        os.write(writer, self._token)
        os.close(writer)
        return reader


def replica_environment(changes: Mapping[str, str], run_dir: Path) -> dict[str, str]:
    """Return the environment of replicas on this machine, with ``changes``.

    Args:
        changes: what a deployment has written.
        run_dir: of the mesh.
    """
    return {
        **SAFE_FORKS,
        **inherited_environment(changes),
        # Lines reach the log when they are printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        "PYSERVE_RUN_DIR": str(run_dir),
    }


def line_taker(
    order: ReplicaOrder,
    on_line: Callable[[str], None],
    on_output: Callable[[DeploymentKey, ReplicaId, str], None],
) -> Callable[[str], None]:
    """Return a function that passes each line of a replica to the terminal and to the log.

    Args:
        order: whose lines they are.
        on_line: see ``LocalLauncher``.
        on_output: see ``LocalLauncher``.
    """
    prefix = f"[{order.replica_id}] "

    def take(line: str) -> None:
        on_line(with_prefix(prefix, line))
        if not line.endswith(PASSING):
            on_output(order.key, order.replica_id, line)

    return take
