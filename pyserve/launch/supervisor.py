"""A persistent mesh: starts the controller and the ingress, and restarts the one that dies.

It knows nothing of applications. It binds the sockets at which ingresses listen, and holds them
until the mesh ends: clients that connect while there is no ingress wait for the next one.

An orderly end is not a death: SIGTERM and SIGINT end the ingress first, which lets its calls
finish, then the controller, which lets its replicas finish theirs; a controller that ends in order
by itself, after ``pyserve shutdown``, ends the mesh.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyserve.config import MeshSettings, inherited_environment
from pyserve.config.control import CONTROLLER_START_TIMEOUT_S, KILL_MARGIN_S, SHUTDOWN_GRACE_S
from pyserve.control.home import is_held
from pyserve.errors import MeshError, MeshHeld
from pyserve.launch.process import Restarts, end_in_words
from pyserve.launch.strays import end_members
from pyserve.listening import HeldSockets

# One process of a persistent mesh, as its supervisor sees it.
#
# A child reports over a pipe, in lines of JSON, where it listens, or why it cannot, and anything
# else that its supervisor needs to know.

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
        return end_in_words(self.pid, status)

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


# Added to the time that a process gives its calls in flight: it ends its parts, and writes files.
_END_MARGIN_S = 2 * KILL_MARGIN_S


@dataclass(frozen=True, kw_only=True)
class MeshPlan:
    """The parts of a persistent mesh.

    Attributes:
        addresses: where the ingress listens, ``host:port`` each; none: there is no ingress.
        development: clients may be told the texts of exceptions.
        settings: of this process; the others read the same environment.
    """

    addresses: Sequence[str]
    development: bool
    settings: MeshSettings


def controller_arguments(plan: MeshPlan) -> Sequence[str]:
    """Return the command line of a supervised controller, without interpreter and module."""
    return [
        *(["--no-admin"] if plan.addresses else []),
        # Elsewhere no process can be found again, and replicas end with their controller.
        *(["--persistent"] if hasattr(os, "pidfd_open") else []),
        *(["--development"] if plan.development else []),
    ]


@dataclass(kw_only=True)
class _Role:
    """One of the processes, and those that take its place.

    Attributes:
        name: for people.
        end_timeout_s: how long an end in order may take.
        child: the one that runs, or ran last.
        held: where it listens, if that outlives it; then one that has served comes back at once,
            since clients wait.
    """

    name: str
    module: str
    arguments: Sequence[str]
    end_timeout_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    held: HeldSockets | None = None
    restarts: Restarts = field(default_factory=Restarts)
    started_at: float = 0.0
    has_served: bool = False
    child: Child | None = None

    async def start(self, now: float) -> dict[str, Any]:
        """Start a process and wait until it is ready; return what it reports.

        Raises:
            MeshError: it is not, and has ended.
        """
        self.started_at, self.has_served = now, False
        descriptors = () if self.held is None else self.held.open()
        arguments = [*self.arguments, *(f"--listen-fd={each}" for each in descriptors)]
        self.child = child = await Child.start(
            self.name, self.module, arguments, self.environment, descriptors
        )
        answer = await child.ready(CONTROLLER_START_TIMEOUT_S)
        self.has_served = True
        if self.held is not None:
            # Its own copy is enough for the calls that it still takes.
            child.on_mesh_end = self.held.close
        return answer

    def delay_s(self, now: float) -> float:
        """Return how long to wait before the next start, now that the child has died."""
        is_awaited = self.held is not None and self.has_served
        return self.restarts.on_death(now - self.started_at, is_awaited=is_awaited)


class Supervisor:
    """The processes of one mesh, from ``run`` to its end.

    Args:
        plan: what they are.
        say: takes lines for people.
    """

    def __init__(self, plan: MeshPlan, say: Callable[[str], None]) -> None:
        self._say = say
        settings = plan.settings.ingress
        self._controller = _Role(
            name="the controller",
            module="pyserve.control",
            arguments=controller_arguments(plan),
            end_timeout_s=SHUTDOWN_GRACE_S + 2 * KILL_MARGIN_S + _END_MARGIN_S,
        )
        self._ingress = _Role(
            name="the ingress",
            module="pyserve.gateway",
            arguments=(),
            held=HeldSockets(plan.addresses),
            end_timeout_s=min(settings.drain_s + SHUTDOWN_GRACE_S, settings.hard_stop_after_s)
            + _END_MARGIN_S,
            # It finds the controller by the home directory, over a socket of this machine.
            environment={"PYSERVE_CONTROLLER": ""},
        )
        self._has_ingress = bool(plan.addresses)
        # Where replicas are found that no controller can end any more; None: none was ever there.
        self._run_dir: Path | None = None
        self._home = plan.settings.home
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._hurry = asyncio.Event()
        self._status = 0
        self._failure: MeshError | None = None

    async def run(self) -> int:
        """Run the mesh until it ends.

        Returns:
            0 after an end in order, else what a shell reports for a program that a signal ended.

        Raises:
            MeshError: a process could not be started the first time; the text says why.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            self._spawn(self._begin())
            await self._over.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._end()
        if self._failure is not None:
            raise self._failure
        return self._status

    def _on_signal(self, number: int) -> None:
        if self._over.is_set():
            self._status = 128 + number
            self._hurry.set()
            return
        self._say("draining; a second signal stops at once")
        self._over.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self) -> None:
        """Start everything for the first time, callees before callers."""
        now = asyncio.get_running_loop().time
        try:
            record = await self._controller.start(now())
            self._run_dir = Path(record["controller"].removeprefix("unix:")).parent
            listening = (await self._start_ingress(now())) if self._has_ingress else ()
        except MeshError as error:
            self._failure = error
            self._over.set()
            return
        places = " and ".join(filter(None, (record["controller"], record["controller_tcp"])))
        self._say(f"the controller listens at {places}; its token is in {record['token_file']}")
        where = " and ".join(listening) if listening else "no address, without an ingress"
        self._say(f"the mesh is ready at {where}; `pyserve shutdown` or Ctrl-C ends it")
        self._spawn(self._keep_controller())
        if self._has_ingress:
            self._spawn(self._keep_ingress())

    async def _start_ingress(self, now: float) -> Sequence[str]:
        addresses: list[str] = (await self._ingress.start(now))["addresses"]
        return addresses

    async def _keep_controller(self) -> None:
        while True:
            assert self._controller.child is not None, "it has been started"
            if await self._controller.child.wait() == 0:
                self._say("the mesh was shut down by another command, or by a signal")
                self._over.set()
                return
            await self._start_again(self._controller)
            ingress = self._ingress.child
            if self._has_ingress and ingress is not None and ingress.ends_with_mesh:
                # The mesh was about to end but goes on; its ending ingress has to be restarted.
                await ingress.wait()
                await self._start_again(self._ingress)
                self._spawn(self._keep_ingress())

    async def _keep_ingress(self) -> None:
        while True:
            assert self._ingress.child is not None, "it has been started"
            await self._ingress.child.wait()
            if self._ingress.child.ends_with_mesh:
                return
            await self._start_again(self._ingress)

    async def _start_again(self, role: _Role) -> None:
        """Restart a process that has died, until it is ready."""
        assert role.child is not None, "it has died"
        now = asyncio.get_running_loop().time
        why = role.child.how_it_ended()
        while True:
            delay_s = role.delay_s(now())
            when = f"in {delay_s:g} s" if delay_s else "at once"
            self._say(f"{role.name} {why}; a new one starts {when}")
            await asyncio.sleep(delay_s)
            try:
                await role.start(now())
            except MeshError as error:
                why = f"cannot be started: {error}"
            else:
                assert role.child is not None, "it is ready"
                self._say(f"{role.name} runs again (process {role.child.pid})")
                return

    async def _end(self) -> None:
        """End the processes: callers first, so that their calls are still answered."""
        if self._ingress.held is not None:
            self._ingress.held.close()
        for role in (self._ingress, self._controller):
            child = role.child
            if child is not None and not await child.end(role.end_timeout_s, self._hurry):
                self._say(f"{role.name} did not end in time and was killed")
        await self._end_left()

    async def _end_left(self) -> None:
        """End the replicas of a controller that has died, or could not end them."""
        if self._run_dir is None or not hasattr(os, "pidfd_open"):
            return
        # They may belong to another mesh by now, if one began while there was no controller.
        if not is_held(self._home) and (ended := await end_members(self._run_dir, self._hurry)):
            self._say(f"replicas that no controller was there for have ended ({ended})")
