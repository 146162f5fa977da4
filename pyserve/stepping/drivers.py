"""Where a continuously batched instance steps: a thread of its own, or the event loop.

Both take what callers do from a queue between two steps, so that the scheduler has one thread. A
class whose own engine batches is not stepped: its values are awaited on the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from pyserve.errors import DeploymentUnavailable
from pyserve.interrupts import raise_ctrl_c
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.request import CURRENT
from pyserve.stepping.calls import Call, Delivery
from pyserve.stepping.endings import as_exception
from pyserve.stepping.engine import Engine, optional
from pyserve.stepping.entries import Entry, Load
from pyserve.stepping.measures import StepMeasures, Tell, Unanswered
from pyserve.stepping.moving import Elsewhere, Moved, Relays
from pyserve.stepping.options import ContinuousOptions

_LOGGER = logging.getLogger(__name__)

Command = Callable[[], object]


class Driver:
    """What all drivers do. Its methods are for the event loop.

    Args:
        model: The instance.
        options: The limits.

    Attributes:
        loop: The event loop.
        client_of, priority_of: Methods of the class that say this of a request, if it has them.
        label: The class's name, for metrics.
        traces: Makes the spans of its calls and steps; ``None``: this process does not trace.
        unanswered: Its calls that have had no value yet.
    """

    def __init__(self, model: Any, options: ContinuousOptions) -> None:
        self.loop = asyncio.get_running_loop()
        self.label = self._name = type(model).__qualname__
        self.client_of = optional(model, "client")
        self.priority_of = optional(model, "priority")
        self.traces = PROCESS_TRACING.steps(self.label)
        self.unanswered = Unanswered()
        self._context = self._own_context()
        self._admissions: dict[Entry[Any], asyncio.Task[None]] = {}
        self._engine = self._make_engine(model, options)
        self._idle = asyncio.Event()
        self._calls = 0
        self._relays: Relays | None = None
        self._ends_with: Exception | None = None
        self._on_failure: Callable[[Exception], object] | None = None
        PROCESS_DRIVERS.add(self)

    def submit(self, call: Call) -> None:
        """Let a new call wait, or refuse it.

        Raises:
            DeploymentUnavailable: The instance has ended.
        """
        if self._ends_with is not None:
            raise self._ends_with
        self._calls += 1
        self._idle.clear()
        # A call that goes on here has had its values elsewhere.
        if call.wants_each and call.moved is None:
            self.unanswered.add(call, time.monotonic())
        self._post(lambda: self._engine.arrive(call))

    def leave(self, call: Call) -> None:
        """End a call before the next step."""
        self._calls -= 1
        self.unanswered.discard(call)
        self._check_idle()
        if self._relays is not None:
            self._relays.end(call)
        self._post(lambda: self._engine.leave(call))

    def read_on(self, call: Call) -> None:
        """Go on with a call whose caller was slow, and has read."""
        if self._relays is not None and self._relays.read_on(call):
            return
        self._post(lambda: self._engine.read_on(call))

    async def close(self) -> None:
        """End all calls, and release their states."""
        raise NotImplementedError

    def tell(self, tell: Tell) -> None:
        """Report what requests cost from now on; ``tell`` is called by the thread that steps."""
        self._post(lambda: self._engine.tell(tell))

    def tell_failure(self, callback: Callable[[Exception], object]) -> None:
        """Call ``callback`` when nothing steps any more, though nobody has asked for that."""
        self._on_failure = callback

    async def drain(self, elsewhere: Elsewhere | None = None) -> None:
        """Refuse what has not been admitted; return when no call is left.

        Args:
            elsewhere: Where the others go on, if the class lets them move; ``None``: nowhere.
        """
        moves = elsewhere is not None and self.options.resume_elsewhere
        if elsewhere is not None and moves and self._relays is None:
            self._relays = Relays(elsewhere, self.options.slack, self._take_back, self._end_moved)
        self._post(lambda: self._engine.drain(sends_away=moves))
        self._check_idle()
        await self._idle.wait()

    @property
    def options(self) -> ContinuousOptions:
        """The limits."""
        return self._engine.options

    @property
    def measures(self) -> StepMeasures:
        """Times and sizes of the steps."""
        return self._engine.measures

    def load(self) -> Load:
        """Return what is held now; from any thread, as of the newest step."""
        return self._engine.load()

    async def _begin_close(self) -> None:
        """Take no more calls, and end what other replicas do for those that are here."""
        self._ends_with = self._ended()
        if self._relays is not None:
            await self._relays.close()

    async def _end_admissions(self) -> None:
        """Return when each ``admit`` that was cancelled has ended, and its state is released."""
        await asyncio.gather(*self._admissions.values(), return_exceptions=True)

    def _tell_failed(self, failure: Exception) -> None:
        if self._on_failure is not None:
            self._on_failure(failure)

    def _ended(self) -> DeploymentUnavailable:
        return DeploymentUnavailable(f"this replica of {self._name} has ended")

    def _check_idle(self) -> None:
        if not self._calls:
            self._idle.set()

    def _hand_out(self, deliveries: list[Delivery]) -> None:
        """Give values to their callers, on the loop."""
        for call, values, is_ended, error in deliveries:
            if is_ended and not call.is_ended:
                self._calls -= 1
            call.deliver(values, is_ended, error)
            if values or is_ended:
                self.unanswered.discard(call)
            if is_ended and self._relays is not None:
                self._relays.end(call)
        self._check_idle()

    def _send_away(self, moves: list[tuple[Entry[Any], Moved]]) -> None:
        """Let calls go on elsewhere, on the loop, when they have what is theirs."""
        assert self._relays is not None, "nothing moves before the drain"
        for entry, moved in moves:
            self._relays.begin(entry, moved)

    def _take_back(self, entry: Entry[Any]) -> None:
        # After this turn: until then the relay is in the context of the call, which the thread
        # that steps enters for it, and no two threads can be in one.
        command = partial(self._engine.take_back, entry)
        self.loop.call_soon(self._post, command, context=contextvars.Context())

    def _end_moved(self, entry: Entry[Any], error: BaseException | None) -> None:
        self._hand_out([(entry.call, (), True, error)])
        self._post(lambda: self._engine.end_moved(entry, error))

    def _make_engine(self, model: Any, options: ContinuousOptions) -> Engine:
        later, stop = self._admit_later, self._stop
        return Engine(model, options, time.monotonic, later, stop, self.traces)

    def _own_context(self) -> contextvars.Context:
        """Return a copy of this context that belongs to no call: the first one makes the driver."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, None)
        if self.traces is not None:
            self.traces.leave(context)
        return context

    def _admit_later(self, entry: Entry[Any], start: Callable[[], Awaitable[Any]]) -> None:
        raise NotImplementedError

    def _stop(self, entry: Entry[Any]) -> None:
        """Cancel what ``_admit_later`` has begun."""
        raise NotImplementedError

    def _post(self, command: Command) -> None:
        raise NotImplementedError

    def _begin_admission(self, entry: Entry[Any], start: Callable[[], Awaitable[Any]]) -> None:
        task = self.loop.create_task(self._admission(entry, start), context=entry.call.context)
        self._admissions[entry] = task

        def forget(_: object) -> None:
            # One that was preempted at once may be on its way again.
            if self._admissions.get(entry) is task:
                del self._admissions[entry]

        task.add_done_callback(forget)

    def _cancel_admission(self, entry: Entry[Any]) -> None:
        task = self._admissions.get(entry)
        if task is not None:
            task.cancel()

    async def _admission(self, entry: Entry[Any], start: Callable[[], Awaitable[Any]]) -> None:
        state: Any = None
        failure: Exception | None = None
        try:
            state = await start()
        except BaseException as error:  # An exit would end the loop of all others.
            raise_ctrl_c(error)
            failure = as_exception(error)
        self._post(lambda: self._engine.on_admitted(entry, state, failure))


PROCESS_DRIVERS: weakref.WeakSet[Driver] = weakref.WeakSet()
"""Those of this process, for scrapes; global because classes of users make them."""


class ThreadDriver(Driver):
    """Steps on a thread of its own, so that the event loop never waits for a step."""

    def __init__(self, model: Any, options: ContinuousOptions) -> None:
        super().__init__(model, options)
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        self._is_late = False  # The thread has ended, and takes no more commands.
        self._model = model
        self._has_ended: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._context.run, args=(self._run,), name=f"{self._name} steps", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """End all calls, release their states, and end the thread after the step that runs."""
        await self._begin_close()
        self._commands.put(None)
        # No thread waits for this one: it would stay at the end of the process beside a step that
        # never returns.
        await asyncio.shield(asyncio.wrap_future(self._has_ended))
        self._take_late()
        await self._end_admissions()

    def _post(self, command: Command) -> None:
        if self._is_late:  # An admission that was cancelled may return a state yet.
            command()
        else:
            self._commands.put(command)

    def _admit_later(self, entry: Entry[Any], start: Callable[[], Awaitable[Any]]) -> None:
        self._call_loop(self._begin_admission, entry, start)

    def _stop(self, entry: Entry[Any]) -> None:
        self._call_loop(self._cancel_admission, entry)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # A fault of ours: nobody may wait for ever.
            _LOGGER.exception("the thread that steps %s has failed", self._name)
            self._call_loop(self._bury, RuntimeError(f"stepping failed: {error!r}"))
        else:
            self._engine.abandon(self._ended())
            self._flush()
        self._has_ended.set_result(None)

    def _bury(self, failure: Exception) -> None:
        """End all calls, on the loop: the thread has ended."""
        self._ends_with = failure
        self._take_late()
        self._engine.abandon(failure)
        self._hand_out(self._engine.deliveries())
        self._tell_failed(failure)

    def _take_late(self) -> None:
        """Take the commands that came too late for the thread, on the loop, and those to come."""
        self._is_late = True
        while not self._commands.empty():
            command = self._commands.get()
            if command is not None:
                command()

    def _turn(self) -> bool:
        """Take commands and make one step; return whether there may be more."""
        commands, engine = self._commands, self._engine
        while not commands.empty():
            command = commands.get()
            if command is None:
                return False
            command()
        chosen = engine.prepare()
        if chosen:
            # The values of the last step are handed out during this one.
            self._flush()
            self._step(chosen)
            return True
        self._flush()
        wakeup = engine.next_wakeup()
        try:
            command = commands.get(timeout=None if wakeup is None else self._until(wakeup))
        except Empty:
            return True
        if command is None:
            return False
        command()
        return True

    @staticmethod
    def _until(wakeup: float) -> float:
        return max(0.0, wakeup - time.monotonic())

    def _step(self, chosen: list[Entry[Any]]) -> None:
        steps = self._engine.stepping(chosen)
        step = self._model.step
        try:
            states = next(steps)
            while True:
                try:
                    results = step(states)
                except BaseException as error:
                    states = steps.throw(error)
                else:
                    states = steps.send(results)
        except StopIteration:
            pass

    def _flush(self) -> None:
        deliveries, moves = self._engine.deliveries(), self._engine.moves()
        if deliveries:
            self._call_loop(self._hand_out, deliveries)
        if moves:
            self._call_loop(self._send_away, moves)

    def _call_loop(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # The loop has ended, and all callers with it.
            _LOGGER.debug("%s has no loop any more", self._name)


class LoopDriver(Driver):
    """Steps on the event loop: for an ``async def step``, or one that takes no time."""

    def __init__(self, model: Any, options: ContinuousOptions) -> None:
        super().__init__(model, options)
        self._commands: deque[Command] = deque()
        self._model = model
        self._news = asyncio.Event()
        self._task = self.loop.create_task(
            self._run(), name=f"{self._name} steps", context=self._context
        )

    async def close(self) -> None:
        """End all calls and release their states, after the step that runs."""
        await self._begin_close()
        self._news.set()
        await self._task
        await self._end_admissions()

    def _post(self, command: Command) -> None:
        if self._task.done():  # An admission that was cancelled may return a state yet.
            command()
            return
        self._commands.append(command)
        self._news.set()

    def _admit_later(self, entry: Entry[Any], start: Callable[[], Awaitable[Any]]) -> None:
        self._begin_admission(entry, start)

    def _stop(self, entry: Entry[Any]) -> None:
        self._cancel_admission(entry)

    async def _run(self) -> None:
        engine = self._engine
        failure: Exception = self._ended()
        try:
            while self._ends_with is None:
                self._news.clear()
                while self._commands:
                    self._commands.popleft()()
                chosen = engine.prepare()
                self._hand_out(engine.deliveries())
                if moves := engine.moves():
                    self._send_away(moves)
                if chosen:
                    await self._step(chosen)
                    await asyncio.sleep(0)  # So that others have a turn, and values leave.
                else:
                    await self._wait(engine.next_wakeup())
        except Exception as error:  # A fault of ours: nobody may wait for ever.
            _LOGGER.exception("the task that steps %s has failed", self._name)
            failure = RuntimeError(f"stepping failed: {error!r}")
            self._tell_failed(failure)
        finally:
            self._ends_with = failure
            while self._commands:
                self._commands.popleft()()
            engine.abandon(failure)
            self._hand_out(engine.deliveries())

    async def _wait(self, wakeup: float | None) -> None:
        try:
            async with asyncio.timeout(None if wakeup is None else wakeup - time.monotonic()):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _step(self, chosen: list[Entry[Any]]) -> None:
        steps = self._engine.stepping(chosen)
        try:
            states = next(steps)
            while True:
                try:
                    results = self._model.step(states)
                    if inspect.isawaitable(results):
                        results = await results
                except BaseException as error:  # An exit would end the loop of all others.
                    raise_ctrl_c(error)
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                    states = steps.throw(error)
                else:
                    states = steps.send(results)
        except StopIteration:
            pass
