"""The process in which a continuously batched instance steps: a child of its replica.

It has the scheduler, the states and a copy of the instance; the replica has the callers. Requests
and values cross by two pipes, as pickles. The end of the replica's pipe ends it, whatever a step
does: so does ``kill -9`` of the replica. See ``process_driver`` for the other side.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import os
import pickle
import signal
import struct
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyserve.errors import SerializationError
from pyserve.observe.uncaught import log_by_environment
from pyserve.stepping.calls import Delivery
from pyserve.stepping.drivers import ThreadDriver
from pyserve.stepping.engine import Engine
from pyserve.stepping.entries import Entry
from pyserve.stepping.measures import StepMeasures
from pyserve.stepping.moving import Moved
from pyserve.stepping.options import ContinuousOptions

if TYPE_CHECKING:
    from pyserve.observe.traces.shared_work import SteppedCall

LENGTH = struct.Struct(">Q")
"""Before each frame: how many bytes it has."""
READY, FAILED, STEPPED = "ready", "failed", "stepped"
"""What the child sends: it can step; it cannot, and why; what came of its steps."""
CLOSE = "close"


def frame_of(value: object) -> bytes:
    """Return a frame.

    Raises:
        Exception: It cannot be pickled.
    """
    body = pickle.dumps(value, 5)
    return LENGTH.pack(len(body)) + body


def deployed_class(module: str, name: str) -> Any:
    """Return the class of a deployment that a module has under its name."""
    return getattr(importlib.import_module(module), name).func_or_class


class ChildCall:
    """A caller of the replica, for the engine here; see ``calls.Stepped``."""

    def __init__(self, number: int, said: tuple[Any, ...], moved: Moved | None) -> None:
        self.number = number
        self.request, self.client, self.priority, self.deadline, self.wants_each = said
        self.moved = moved
        self.sent = self.read = 0
        self.skip = 0 if moved is None else moved.skip
        self.last: Sequence[object] = () if moved is None else moved.last
        self.value_at = 0.0
        self.is_admitted = self.is_parked = False
        self.charge = 0.0
        self.trace: SteppedCall | None = None  # The replica makes the spans.
        self.context = contextvars.copy_context()

    def run(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """See ``calls.Stepped``."""
        return self.context.run(function, *arguments)


class _Told(StepMeasures):
    """Keeps the steps for the replica, which counts them."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, float]] = []

    def step(self, size: int, duration_s: float) -> None:
        self.steps.append((size, duration_s))


class ChildDriver(ThreadDriver):
    """Steps on a thread, and sends what there is for callers to the replica.

    Args:
        model: The instance.
        options: The limits.
        send: Sends a frame; it may wait for the replica.
    """

    def __init__(
        self, model: Any, options: ContinuousOptions, send: Callable[[bytes], object]
    ) -> None:
        self._send = send
        self._numbered: dict[int, ChildCall] = {}
        self._away: dict[int, Entry[Any]] = {}
        self._told = _Told()
        super().__init__(model, options)

    def take(self, command: str, *arguments: Any) -> None:
        """Do what the replica says, between two steps; from any thread."""
        acts: dict[str, Callable[..., None]] = {
            "arrive": self._arrive,
            "leave": self._leave,
            "read": self._read,
            "drain": self._drain,
            "take back": self._go_on,
            "end moved": self._forget_moved,
        }
        act = acts[command]
        self._post(lambda: act(*arguments))

    def _make_engine(self, model: Any, options: ContinuousOptions) -> Engine:
        engine = super()._make_engine(model, options)
        engine.measures = self._told
        return engine

    def _arrive(self, number: int, pickled: bytes) -> None:
        try:
            said, moved = pickle.loads(pickled)  # noqa: S301 (from the replica)
        except Exception as error:  # Its caller alone has failed.
            failure = SerializationError(
                f"the request cannot be unpickled in the process that steps: {error}"
            )
            row = (number, (), True, CarriedError(failure), False, 0.0)
            self._send(frame_of((STEPPED, [row], [], self._engine.load(), [])))
            return
        call = self._numbered[number] = ChildCall(number, said, moved)
        self._engine.arrive(call)

    def _leave(self, number: int) -> None:
        call = self._numbered.get(number)
        if call is not None:
            self._engine.leave(call)

    def _read(self, number: int, count: int) -> None:
        call = self._numbered.get(number)
        if call is not None:
            call.read = count
            if call.is_parked:
                self._engine.read_on(call)

    def _drain(self, sends_away: bool) -> None:
        self._engine.drain(sends_away=sends_away)

    def _go_on(self, number: int) -> None:
        entry = self._away.pop(number, None)
        if entry is not None:
            self._engine.take_back(entry)

    def _forget_moved(self, number: int) -> None:
        entry = self._away.pop(number, None)
        if entry is not None:
            del self._numbered[number]
            self._engine.end_moved(entry, None)

    def _bury(self, _failure: Exception) -> None:
        """End this process, which steps no more; the replica then ends all calls."""
        os._exit(1)

    def _flush(self) -> None:
        self._hand_out(self._engine.deliveries())

    def _hand_out(self, deliveries: list[Delivery]) -> None:
        """Send what there is, instead of calling callers."""
        moves = self._engine.moves()
        steps, self._told.steps = self._told.steps, []
        if not (deliveries or moves or steps):
            return
        # One that has failed because of its values has an end already.
        here = [each for each in deliveries if each[0].number in self._numbered]
        told = [self._row_of(*each) for each in here]
        moved = [(entry.call.number, each) for entry, each in moves]
        self._away.update((entry.call.number, entry) for entry, _ in moves)
        load = self._engine.load()
        try:
            frame = frame_of((STEPPED, told, steps, load, moved))
        except Exception:  # Of one of them: which?
            told = [self._portable(row) for row in told]
            moved = [each for each in moved if self._can_move(*each)]
            frame = frame_of((STEPPED, told, steps, load, moved))
        self._send(frame)

    def _row_of(
        self, call: ChildCall, values: Sequence[object], is_ended: bool, error: BaseException | None
    ) -> tuple[Any, ...]:
        if is_ended:
            del self._numbered[call.number]
            self._away.pop(call.number, None)
        carried = None if error is None else CarriedError(error)
        return call.number, tuple(values), is_ended, carried, call.is_admitted, call.charge

    def _portable(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row, or the failure of a call whose values cannot be pickled."""
        number, _, _, _, is_admitted, charge = row
        try:
            pickle.dumps(row, 5)
        except Exception as error:
            self._leave(number)
            self._numbered.pop(number, None)
            failure = SerializationError(
                f"a value of {self._name} cannot be pickled, as it must be to leave the process "
                f"that steps: {error}"
            )
            return number, (), True, CarriedError(failure), is_admitted, charge
        return row

    def _can_move(self, number: int, moved: Moved) -> bool:
        try:
            pickle.dumps(moved, 5)
        except Exception:
            self._go_on(number)
            return False
        return True


class CarriedError:
    """An exception on its way between processes, rebuilt without a call of its constructor.

    Constructors often take something else than what ``args`` has, and pickle calls them with that.

    Args:
        error: It. Its traceback becomes a note; what cannot be pickled of it, a ``RuntimeError``
            with its text.
    """

    def __init__(self, error: BaseException) -> None:
        self._kind, self._args, self._state = type(error), error.args, error.__dict__
        try:
            pickle.loads(pickle.dumps(self, 5))  # noqa: S301 (its own)
        except Exception:
            text = f"{type(error).__qualname__}: {error}"
            self._kind, self._args, self._state = RuntimeError, (text,), {}
        self._trace = ""
        if error.__traceback__ is not None:
            self._trace = "".join(traceback.format_exception(error))

    def rebuilt(self) -> BaseException:
        """Return the exception, on the other side."""
        error = self._kind.__new__(self._kind)
        error.args = self._args
        error.__dict__.update(self._state)
        if self._trace:
            error.add_note(f"In the process that steps:\n{self._trace}")
        return error


def main(commands: int, values: int) -> int:
    """Step until the replica closes; return the exit status.

    Args:
        commands: Descriptor of the pipe that the replica writes to.
        values: Of the one that it reads.
    """
    # The replica has these signals too, and closes this process when its calls have ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    log_by_environment()
    return asyncio.run(_run(os.fdopen(commands, "rb"), _Sender(values)))


class _Sender:
    """Writes frames to a pipe, from one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._writing = threading.Lock()

    def __call__(self, frame: bytes) -> None:
        view = memoryview(frame)
        with self._writing:
            while view:
                view = view[self._file.write(view) :]


async def _run(commands: Any, send: _Sender) -> int:
    ending = asyncio.Event()
    try:
        model, options = pickle.loads(_read_frame(commands))  # noqa: S301 (from the replica)
        setup = getattr(model, "setup", None)
        if setup is not None:
            done = setup()
            if inspect.isawaitable(done):
                await done
    except BaseException as error:
        send(frame_of((FAILED, CarriedError(error))))
        return 1
    driver = ChildDriver(model, options, send)
    send(frame_of((READY,)))
    loop = asyncio.get_running_loop()

    def follow() -> None:
        while True:
            command = pickle.loads(_read_frame(commands))  # noqa: S301 (from the replica)
            if command[0] == CLOSE:
                break
            driver.take(*command)
        loop.call_soon_threadsafe(ending.set)

    threading.Thread(target=follow, name="commands", daemon=True).start()
    await ending.wait()
    await driver.close()
    return 0


def _read_frame(commands: Any) -> bytes:
    """Return the next frame; the end of the pipe ends this process."""
    head = commands.read(LENGTH.size)
    size_bytes = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
    body: bytes = commands.read(size_bytes)
    if not body or len(body) < size_bytes:
        os._exit(1)
    return body
