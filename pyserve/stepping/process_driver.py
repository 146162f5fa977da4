"""Lets a continuously batched instance step in a child process; ``child`` is the other side.

The replica keeps the callers, and what they read. Its event loop unpickles one frame for each step,
and its interpreter is free while the child steps.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pyserve import code_pickler
from pyserve.errors import DeploymentUnavailable, SerializationError
from pyserve.observe.separate import Separate
from pyserve.stepping.calls import Call, Delivery
from pyserve.stepping.child import CLOSE, FAILED, LENGTH, READY, deployed_class, frame_of
from pyserve.stepping.drivers import PROCESS_DRIVERS, Command, Driver
from pyserve.stepping.endings import NotStarted
from pyserve.stepping.engine import optional
from pyserve.stepping.entries import Entry, Load
from pyserve.stepping.measures import CostReports, StepMeasures, Tell
from pyserve.stepping.moving import Moved
from pyserve.stepping.options import ContinuousOptions

# The child looks for modules where this process does.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pyserve.stepping.child import main; sys.exit(main(int(sys.argv[2]), int(sys.argv[3])))"
)
_NOTHING = Load(
    running=0,
    parked=0,
    waiting=0,
    waiting_cost=0.0,
    used=0.0,
    step_s=0.0,
    wait_s=0.0,
    steps=0,
    admitted=0,
    preempted=0,
)


class RemoteEngine:
    """Stands for the engine of the child; has the part of ``Engine`` that drivers use.

    Args:
        options: The limits.
        send: Sends a frame to the child.
    """

    def __init__(self, options: ContinuousOptions, send: Callable[[bytes], object]) -> None:
        self.options = options
        self.measures = StepMeasures()
        self._send = send
        self._numbers = itertools.count()
        self._calls: dict[int, Call] = {}
        self._known: dict[Call, int] = {}
        self._reported: dict[Call, int] = {}
        self._out: list[Delivery] = []
        self._moves: list[tuple[Entry[Any], Moved]] = []
        self._load = _NOTHING
        self._costs: CostReports | None = None

    # --- what happens to calls --------------------------------------------------------------

    def arrive(self, call: Call) -> None:
        """See ``Engine``."""
        call.value_at = time.monotonic()
        said = (call.request, call.client, call.priority, call.deadline, call.wants_each)
        number = next(self._numbers)
        try:
            frame = frame_of(("arrive", number, pickle.dumps((said, call.moved), 5)))
        except Exception as error:
            failure = SerializationError(
                f"the request cannot be pickled, as it must be to get into the process that "
                f"steps: {error}"
            )
            self._end(call, failure)
            return
        self._calls[number], self._known[call] = call, number
        self._reported[call] = 0
        call.is_parked = call.wants_each  # So that `read_on` is called for each value.
        self._send(frame)

    def tell(self, tell: Tell) -> None:
        """Report what requests cost after each step; the model must have a ``cost``."""
        self._costs = CostReports(self.options, tell)

    def leave(self, call: Call) -> None:
        """See ``Engine``."""
        self._tell("leave", call)

    def read_on(self, call: Call) -> None:
        """Say how much a caller has read, by parts of the slack."""
        if call.read - self._reported.get(call, call.read) >= max(1, self.options.slack // 2):
            self._reported[call] = call.read
            self._tell("read", call, call.read)

    def drain(self, *, sends_away: bool = False) -> None:
        """See ``Engine``."""
        self._send(frame_of(("drain", sends_away)))

    def take_back(self, entry: Entry[Any]) -> None:
        """See ``Engine``."""
        entry.call.is_parked = entry.call.wants_each
        self._tell("take back", entry.call)

    def end_moved(self, entry: Entry[Any], error: BaseException | None) -> None:
        """See ``Engine``."""
        self._tell("end moved", entry.call)
        self._forget(entry.call, error)

    def abandon(self, error: BaseException, not_started: BaseException) -> None:
        """End all calls with an error, and those that have not been admitted with another."""
        admitted, waiting = Separate(), Separate()
        for call in tuple(self._known):
            self._end(call, admitted(error) if call.is_admitted else waiting(not_started))

    # --- what the child says ----------------------------------------------------------------

    def take(
        self,
        rows: list[tuple[Any, ...]],
        steps: list[tuple[int, float]],
        load: Load,
        moves: list[tuple[int, Moved]],
    ) -> None:
        """Take what came of steps."""
        self._load = load
        for step in steps:
            self.measures.step(*step)
        now = time.monotonic()
        for number, values, is_ended, carried, is_admitted, charge in rows:
            error = None if carried is None else carried.rebuilt()
            call = self._calls.get(number)
            if call is None:
                continue
            call.charge = charge
            if is_admitted and not call.is_admitted:
                call.is_admitted = True
                if call.trace is not None:
                    call.trace.note("admitted")
            if values and call.wants_each:
                self.measures.value(call, now)
                call.sent += len(values)
            if is_ended:
                self._forget(call, error)
            self._out.append((call, values, is_ended, error))
        for number, moved in moves:
            call = self._calls.get(number)
            if call is not None:
                self._moves.append((Entry(call), moved))
        if self._costs is not None:
            self._costs.report(load, load.admitted, len(self._known))

    # --- what is known ----------------------------------------------------------------------

    def deliveries(self) -> list[Delivery]:
        """See ``Engine``."""
        found, self._out = self._out, []
        return found

    def moves(self) -> list[tuple[Entry[Any], Moved]]:
        """See ``Engine``."""
        found, self._moves = self._moves, []
        return found

    def load(self) -> Load:
        """See ``Engine``; as of the newest step."""
        return self._load

    # --- inside -----------------------------------------------------------------------------

    def _tell(self, command: str, call: Call, *arguments: Any) -> None:
        number = self._known.get(call)
        if number is not None:
            self._send(frame_of((command, number, *arguments)))

    def _end(self, call: Call, error: BaseException) -> None:
        self._forget(call, error)
        self._out.append((call, (), True, error))

    def _forget(self, call: Call, error: BaseException | None) -> None:
        number = self._known.pop(call, None)
        if number is not None:
            del self._calls[number], self._reported[call]
        if call.trace is not None:
            call.trace.end(call.sent, error)


class ProcessDriver(Driver):
    """Steps in a child process, which it starts, and which ends with it.

    Args:
        model: The instance; a copy of it steps, made by pickling it.
        options: The limits.

    Raises:
        Exception: The instance cannot be pickled.
    """

    def __init__(self, model: Any, options: ContinuousOptions) -> None:
        self._writer: asyncio.WriteTransport | None = None
        self._has_cost = optional(model, "cost") is not None
        self._early = [_shipped(model, options)]
        super().__init__(model, options)
        self._is_ready: asyncio.Future[None] = self.loop.create_future()
        self._start()
        self._task = self.loop.create_task(
            self._follow(), name=f"{self._name} steps", context=self._context
        )

    @property
    def pid(self) -> int:
        """The child's."""
        return self._process.pid

    async def wait_ready(self) -> None:
        """Wait until the child can step.

        Raises:
            Exception: What ``setup`` has raised, or why the child has ended.
        """
        await asyncio.shield(self._is_ready)

    def tell(self, tell: Tell) -> None:
        """See ``Driver``."""
        if self._has_cost:
            super().tell(tell)

    async def close(self) -> None:
        """End all calls, release their states, and end the child after the step that runs."""
        await self._begin_close()
        self._send(frame_of((CLOSE,)))
        try:
            await asyncio.shield(self._task)
        finally:
            if self._process.poll() is None:
                self._process.kill()

    def leave_to_parent(self) -> None:
        """Close the pipes in a fork: the child must see when the parent has gone."""
        for descriptor in self._descriptors:
            os.close(descriptor)

    def _make_engine(self, _model: Any, options: ContinuousOptions) -> Any:
        self._remote = RemoteEngine(options, self._send)
        return self._remote

    def _post(self, command: Command) -> None:
        command()
        self._hand_out(self._remote.deliveries())

    def _start(self) -> None:
        theirs, ours = os.pipe()
        values, their_values = os.pipe()
        arguments = [json.dumps(sys.path), str(theirs), str(their_values)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs, their_values),
            )
        finally:
            os.close(theirs)
            os.close(their_values)
        self._descriptors: tuple[int, ...] = (ours, values)

    def _send(self, frame: bytes) -> None:
        if self._writer is None:
            self._early.append(frame)
        elif not self._writer.is_closing():
            self._writer.write(frame)

    async def _follow(self) -> None:
        """Take what the child says, until it ends."""
        ours, values = self._descriptors
        reader = asyncio.StreamReader(loop=self.loop)
        source, _ = await self.loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=self.loop), os.fdopen(values, "rb", 0)
        )
        self._writer, _ = await self.loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(ours, "wb", 0)
        )
        for frame in self._early:
            self._writer.write(frame)
        self._early.clear()
        failure: Exception | None = None
        try:
            while True:
                self._take(*await _read_frame(reader))
        except asyncio.IncompleteReadError:
            pass
        except Exception as error:  # A value that cannot be unpickled here.
            failure = error
        self._descriptors = ()
        if not self._writer.is_closing():
            self._writer.abort()
        source.close()
        await self._bury(failure)

    def _take(self, kind: str, *said: Any) -> None:
        if kind == READY:
            if not self._is_ready.done():
                self._is_ready.set_result(None)
        elif kind == FAILED:
            if not self._is_ready.done():
                self._is_ready.set_exception(said[0].rebuilt())
        else:
            self._remote.take(*said)
            self._hand_out(self._remote.deliveries())
            if moves := self._remote.moves():
                self._send_away(moves)

    async def _bury(self, failure: Exception | None) -> None:
        """End all calls: the child has ended, or nothing that it says can be understood."""
        if failure is not None:
            self._process.kill()
        status = await asyncio.to_thread(self._process.wait)
        if self._ends_with is not None:  # It was asked to end.
            ending: Exception = self._ends_with
            not_started = ending
        else:
            why = "" if failure is None else f", since {failure!r} came out of its values"
            text = f"the process that steps {self._name} has ended with status {status}{why}"
            ending = DeploymentUnavailable(text)
            # Nothing has happened for these, so the router sends them to another replica.
            not_started = self._ends_with = NotStarted(f"{text}; send the request again")
            self._tell_failed(ending)
        self._remote.abandon(ending, not_started)
        self._hand_out(self._remote.deliveries())
        if not self._is_ready.done():
            self._is_ready.set_exception(ending)
        self._is_ready.exception()  # Nobody may have waited for it.


def _shipped(model: Any, options: ContinuousOptions) -> bytes:
    """Return the frame that makes a copy of an instance in the child."""
    buffer = io.BytesIO()
    _InstancePickler(buffer, 5).dump((model, options))
    return LENGTH.pack(buffer.tell()) + buffer.getvalue()


class _InstancePickler(code_pickler.CodePickler):
    """Pickles deployed classes by their place, though their modules have deployments there.

    By value, such a class would be another one than that of its own methods, which travel by place.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and _is_deployed_at(value, value.__module__):
            return deployed_class, (value.__module__, value.__name__)
        return super().reducer_override(value)


def _is_deployed_at(target: type, module: str) -> bool:
    found = getattr(sys.modules.get(module), target.__name__, None)
    return module != "__main__" and getattr(found, "func_or_class", None) is target


async def _read_frame(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    (size_bytes,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    body = await reader.readexactly(size_bytes)
    found: tuple[Any, ...] = pickle.loads(body)  # noqa: S301 (from the child)
    return found


def _leave_to_parent() -> None:
    for driver in tuple(PROCESS_DRIVERS):
        if isinstance(driver, ProcessDriver):
            driver.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
