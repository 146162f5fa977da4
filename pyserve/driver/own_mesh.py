"""The ingress of a program's mesh, in this process, and the keeping of its controller.

A controller that dies is followed by another one, which finds the replicas that live; meanwhile
they and this ingress serve on. The mesh ends when a controller ends in order, when no other one
can be started, and at once where this process dies: replicas and controller hold a pipe of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyserve.bridge import raise_descriptor_limit
from pyserve.config import MeshSettings, read_settings
from pyserve.config.control import CONTROLLER_START_TIMEOUT_S, KILL_MARGIN_S
from pyserve.control.discovery import MeshHome
from pyserve.control.home import Lease
from pyserve.errors import MeshError, PyserveError
from pyserve.gateway.process import IngressProcess, tell
from pyserve.observe.logs.sink import set_up_logging

if TYPE_CHECKING:
    from pyserve.launch.process import Restarts


_LOGGER = logging.getLogger(__name__)
# After so many deaths in a row, each within a minute of a start, no other controller is started.
# With the delays between them, the trouble has then lasted half a minute.
_DEATHS_MAX = 6
# After so many starts in a row that a controller refuses (its state is missing, for example),
# another one would refuse too.
_REFUSALS_MAX = 3
# How long the ingress may take after its drain, whose end the controller has waited for.
_INGRESS_END_TIMEOUT_S = 2 * KILL_MARGIN_S


def run(arguments: Sequence[str], controllers: Controllers, first: ControllerProcess) -> int:
    """Run a mesh whose first controller has been started.

    Returns:
        0 after an orderly end, else 1.
    """
    options = _parse(arguments)
    # Before the ingress computes how many clients it has room for.
    raise_descriptor_limit()
    try:
        settings = read_settings()
        # The controller says where logs go.
        sink = set_up_logging("ingress", settings.logs, screen=options.screen_fd, says_where=False)
    except (PyserveError, OSError) as error:
        first.process.terminate()
        tell(options.report_fd, {"error": str(error)})
        first.process.wait()
        return 1
    try:
        return asyncio.run(_run(options, settings, controllers, first))
    finally:
        sink.close()


async def _run(
    options: argparse.Namespace,
    settings: MeshSettings,
    controllers: Controllers,
    first: ControllerProcess,
) -> int:
    return await _OwnMesh(options, settings, controllers, first).run()


class _OwnMesh:
    """The processes of the mesh, from the start of the first controller on."""

    def __init__(
        self,
        options: argparse.Namespace,
        settings: MeshSettings,
        controllers: Controllers,
        first: ControllerProcess,
    ) -> None:
        self._options = options
        self._settings = settings
        self._lease = Lease.from_argument(options.lease)
        self._controllers = controllers
        self._controller = first
        self._restarts: Restarts | None = None  # Until the first death.
        self._started_at = asyncio.get_running_loop().time()
        self._is_lasting = False
        self._ingress: IngressProcess | None = None
        self._serving: asyncio.Task[int] | None = None
        # Somebody has sent a signal: no controller is started any more.
        self._told = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> int:
        """Run the mesh until it ends; return the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        status = 1
        try:
            if await self._begin():
                status = await self._keep()
        finally:
            await self._end(in_order=status == 0)
        return status

    async def _begin(self) -> bool:
        """Wait for the first controller, then serve; tell the starter how it went."""
        try:
            record = await self._ready()
            self._is_lasting = bool(record.pop("lasts"))
            record["addresses"] = await self._start_ingress()
        except (PyserveError, OSError) as error:
            tell(self._options.report_fd, {"error": str(error)})
            return False
        tell(self._options.report_fd, record)
        return True

    async def _ready(self) -> dict[str, Any]:
        controller = self._controller
        try:
            async with asyncio.timeout(CONTROLLER_START_TIMEOUT_S):
                line = await asyncio.to_thread(controller.read_report)
        except TimeoutError:
            controller.process.kill()
            raise MeshError(
                f"the controller did not start within {CONTROLLER_START_TIMEOUT_S:g} s"
            ) from None
        answer: dict[str, Any] = json.loads(line) if line else {}
        if "controller" not in answer:
            await asyncio.to_thread(controller.process.wait)
            raise MeshError(answer.get("error") or f"{controller.how_it_ended()} while it started")
        return answer

    async def _start_ingress(self) -> Sequence[str]:
        """Serve at the addresses; return where that is."""
        if not self._options.address:
            return ()
        listening: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()

        def say(answer: Mapping[str, Any], _line: str) -> None:
            if "addresses" in answer and not listening.done():
                listening.set_result(answer["addresses"])

        self._ingress = IngressProcess(
            self._options.address,
            # It finds the controller by the home directory, over a socket of this machine.
            replace(self._settings, controller=None),
            self._lease.run_dir,
            say=say,
            is_of_driver=True,
        )
        self._serving = asyncio.create_task(self._ingress.run())
        waits: set[asyncio.Future[Any]] = {listening, self._serving}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            self._serving.result()  # It could not begin, and this says why.
            raise MeshError("the ingress was ended by a signal while it started")
        return listening.result()

    async def _keep(self) -> int:
        """Keep a controller running until the mesh ends; return the exit status."""
        while True:
            status = await self._controller_end()
            is_ending = self._told.is_set() or (self._ingress and self._ingress.is_draining)
            if status == 0 or is_ending:
                return 0 if status == 0 else 1
            if not self._is_lasting:
                _LOGGER.error(
                    "%s, and the mesh with it: its replicas cannot be found again",
                    self._controller.how_it_ended(),
                )
                return 1
            if not await self._start_again():
                return 1

    async def _controller_end(self) -> int:
        ended = asyncio.ensure_future(asyncio.to_thread(self._controller.process.wait))
        if self._serving is not None:
            await asyncio.wait({ended, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and self._ingress and not self._ingress.is_draining:
                # It has said why; without it the mesh is of no use.
                self._controller.process.terminate()
        return await ended

    async def _start_again(self) -> bool:
        """Start another controller in the place of one that died; return whether one is there."""
        # What starts processes would take a fifth of the time in which this one starts.
        from pyserve.launch.process import Restarts

        loop = asyncio.get_running_loop()
        restarts = self._restarts = self._restarts or Restarts()
        why, refusals = self._controller.how_it_ended(), 0
        while True:
            delay_s = restarts.on_death(loop.time() - self._started_at)
            if restarts.deaths >= _DEATHS_MAX or refusals >= _REFUSALS_MAX:
                _LOGGER.error(
                    "%s; no other one is tried, and the mesh ends with its replicas; pyserve.run "
                    "or `pyserve run` starts another mesh",
                    why,
                )
                return False
            _LOGGER.warning("%s; another one starts %s", why, _when(delay_s))
            await self._pause(delay_s)
            if self._told.is_set():
                return False
            self._started_at = loop.time()
            try:
                self._controller = self._controllers.start()
                await self._ready()
            except (MeshError, OSError) as error:
                why, refusals = f"the controller cannot be started: {error}", refusals + 1
                if self._is_starter_gone():
                    return False
            else:
                pid = self._controller.process.pid
                _LOGGER.warning("the controller runs again (process %d)", pid)
                return True

    async def _pause(self, delay_s: float) -> None:
        """Wait with a start, but not when somebody wants the mesh to end."""
        loop, starter = asyncio.get_running_loop(), self._options.liveness_fd
        asked = asyncio.Event()
        loop.add_reader(starter, asked.set)
        waits = [asyncio.ensure_future(each.wait()) for each in (self._told, asked)]
        try:
            await asyncio.wait(waits, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(starter)
            for each in waits:
                each.cancel()

    def _is_starter_gone(self) -> bool:
        """Say whether the starter has ended, or is in a hurry to."""
        return bool(select.select([self._options.liveness_fd], [], [], 0)[0])

    def _on_signal(self) -> None:
        """Pass it on: the controller drains at the first one, and ends at the second."""
        if self._told.is_set():
            self._hurry.set()
        self._told.set()
        if self._controller.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._controller.process.send_signal(signal.SIGTERM)

    async def _end(self, *, in_order: bool) -> None:
        """End what is left of the mesh."""
        if self._ingress is not None and self._serving is not None:
            if not self._ingress.is_draining:
                self._ingress.end()
            if in_order:
                await asyncio.wait({self._serving}, timeout=_INGRESS_END_TIMEOUT_S)
            self._serving.cancel()
            await asyncio.wait({self._serving})
        process = self._controller.process
        if process.returncode is None:
            process.terminate()
            await asyncio.to_thread(process.wait)
        if not in_order:
            await self._end_left()

    async def _end_left(self) -> None:
        """End the replicas of a controller that has died, and remove its files."""
        if self._is_lasting:
            from pyserve.launch.strays import end_members

            await end_members(self._lease.run_dir, self._hurry)
        try:
            home = MeshHome(self._settings.home, lease=self._lease.copy())
        except MeshError as error:
            _LOGGER.warning("%s stays: %s", self._lease.run_dir, error)
        else:
            home.is_in_use = False
            home.close()


def _when(delay_s: float) -> str:
    return f"in {delay_s:g} s" if delay_s else "at once"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pyserve.driver.own",
        description="The mesh of a program; its other options are those of pyserve.control.",
    )
    parser.add_argument("--address", action="append", default=[], help="where the ingress listens")
    parser.add_argument("--lease", required=True, help="of the home directory")
    parser.add_argument("--liveness-fd", type=int, required=True, help="socket of the starter")
    parser.add_argument("--report-fd", type=int, required=True, help="pipe for one line of JSON")
    parser.add_argument("--screen-fd", type=int, help="pipe for lines, to the terminal")
    return parser.parse_known_args(arguments)[0]


# The controllers of a program's mesh, one after the other, as children of this process.
#
# It imports the standard library only, and of that little: the first controller starts before
# anything else of this process.

# Those of this process's options that are not the controller's.
_OWN = ("--address=", "--report-fd=")
_DESCRIPTORS = ("--liveness-fd=", "--screen-fd=")


class Controllers:
    """Starts controllers that are alike, and holds what outlives them.

    The writing end of one pipe stays in this process alone: where it closes, whichever controller
    runs and all replicas end.

    Args:
        arguments: of this process's command line.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._keeper, self._writer = os.pipe()
        has_ingress = any(each.startswith("--address=") for each in arguments)
        self._arguments = [
            *(each for each in arguments if not each.startswith(_OWN)),
            *(["--no-admin"] if has_ingress else []),
            f"--keeper-fd={self._keeper}",
        ]
        self._descriptors = [
            self._keeper,
            *(int(_value(each)) for each in arguments if each.startswith(_DESCRIPTORS)),
        ]
        for each in arguments:
            if each.startswith("--lease="):
                self._descriptors += map(int, _value(each).split(",")[:2])

    def start(self) -> ControllerProcess:
        """Start one; ``OSError`` if the interpreter cannot be started."""
        report, writer = os.pipe()
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "pyserve.control"),
                    f"--report-fd={writer}",
                    *self._arguments,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(writer, *self._descriptors),
            )
        except OSError:
            os.close(report)
            raise
        finally:
            os.close(writer)
        return ControllerProcess(process, report)


class ControllerProcess:
    """One controller.

    Attributes:
        process: its handle.
    """

    def __init__(self, process: subprocess.Popen[bytes], report: int) -> None:
        self.process = process
        self._report = report

    def read_report(self) -> bytes:
        """Block until it has said that it is ready, or why not; b"": it has ended."""
        with os.fdopen(self._report, "rb") as file:
            return file.readline()

    def how_it_ended(self) -> str:
        """Return its end in words; it has ended."""
        from pyserve.launch.process import end_in_words

        return f"the controller {end_in_words(self.process.pid, self.process.returncode)}"


def _value(argument: str) -> str:
    return argument.partition("=")[2]
