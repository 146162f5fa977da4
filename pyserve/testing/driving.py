"""Drives a continuously batched class without a mesh: deterministic, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import inspect
import itertools
import math
import random
import selectors
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyserve.errors import RequestCancelled
from pyserve.stepping.calls import Call
from pyserve.stepping.decorator import options_of
from pyserve.stepping.endings import as_exception
from pyserve.stepping.engine import Engine
from pyserve.stepping.entries import Entry
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.stream_driver import StreamDriver
from pyserve.stepping.streams import batches_itself
from pyserve.testing.admitting import PausingLoop

if TYPE_CHECKING:
    from pyserve.observe.traces.shared_work import SteppedCall
    from pyserve.stepping.moving import Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of ``drive``, and what its caller does.

    Attributes:
        request: What ``admit`` takes.
        at_s: When it comes, in seconds of virtual time.
        client: Requests of different clients take turns.
        priority: Higher ones come first.
        deadline_s: How long its caller waits; ``None``: for ever.
        leaves_s: When its caller goes away, after it came; ``None``: it stays.
        reads_s: How long its caller takes for each value.
        wants_each: Whether it reads every value, and not the last one alone.
    """

    request: Any
    at_s: float = 0.0
    client: str = ""
    priority: int = 0
    deadline_s: float | None = None
    leaves_s: float | None = None
    reads_s: float = 0.0
    wants_each: bool = True


@dataclass(slots=True)
class Outcome:
    """What became of one request.

    Attributes:
        request: It.
        values: What its caller got.
        error: What it failed with; ``None``: it did not, or its caller has gone.
        first_s: When its first value was there, in virtual time; ``None``: never.
        ended_s: When it ended.
    """

    request: Any
    values: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    first_s: float | None = None
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        at_s: When it began, in virtual time.
        requests: Which requests had a state in it, by their number.
    """

    at_s: float
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Driven:
    """What ``drive`` has seen.

    Attributes:
        outcomes: In the order of the requests.
        steps: All that were made.
    """

    outcomes: Sequence[Outcome]
    steps: Sequence[Step]

    @property
    def values(self) -> list[list[Any]]:
        """The values of each request.

        Raises:
            BaseException: What the first request that failed has failed with.
        """
        for outcome in self.outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [outcome.values for outcome in self.outcomes]


def drive(
    model: Any,
    requests: Iterable[Any],
    *,
    seed: int = 0,
    per_s: float | None = None,
    step_s: float | Callable[[int], float] = 0.005,
    options: ContinuousOptions | None = None,
) -> Driven:
    """Run requests through an instance of a continuously batched class.

    One thread, no process, no clock: the same arguments give the same result. What ``admit``
    and ``step`` really take does not count. What an ``async def admit`` awaits with
    ``asyncio.sleep`` passes in virtual time; what it awaits of threads and sockets takes none.

    A class without ``step``, whose own engine batches, runs on an event loop in virtual time: what
    it awaits with ``asyncio.sleep`` passes at once, and is what counts. Threads, processes and
    sockets have no place in virtual time; an engine that needs one of them is tested with
    ``pyserve.testing.client``.

    Args:
        model: The instance.
        requests: What ``admit`` takes, or ``Arrival`` objects.
        seed: Of the arrivals, with ``per_s``.
        per_s: How many requests come in a second on average, at random times; ``None``: they come
            at ``Arrival.at_s``, by default all at once.
        step_s: How long a step takes in virtual time, or a function of the number of its states;
            of no effect without ``step``.
        options: Those of its decorator, if not given.

    Raises:
        KindError: The class has no ``@pyserve.continuous``, and ``options`` is not given.
        RuntimeError: Requests are left that nothing can bring forward, or a thread wants to.
    """
    arrivals = [each if isinstance(each, Arrival) else Arrival(request=each) for each in requests]
    times = [each.at_s for each in arrivals]
    if per_s is not None:
        rng = random.Random(seed)  # noqa: S311 (arrivals of a simulation)
        times = list(itertools.accumulate(rng.expovariate(per_s) for _ in arrivals))
    limits = options or options_of(type(model))
    if batches_itself(type(model)):
        return _drive_streams(model, zip(arrivals, times, strict=True), limits)
    run = _Run(model, limits, step_s)
    for number, (arrival, at_s) in enumerate(zip(arrivals, times, strict=True)):
        run.expect(number, arrival, at_s)
    try:
        run.to_the_end()
    finally:
        run.close()
    return Driven(run.outcomes, run.steps)


class _Call:
    """A caller in virtual time; see ``engine.Stepped``."""

    def __init__(self, number: int, arrival: Arrival, now: float) -> None:
        self.number = number
        self.arrival = arrival
        self.request = arrival.request
        self.client = arrival.client
        self.priority = arrival.priority
        self.deadline = math.inf if arrival.deadline_s is None else now + arrival.deadline_s
        self.wants_each = arrival.wants_each
        self.sent = self.read = self.skip = 0
        self.last: Sequence[object] = ()
        self.is_parked = self.is_admitted = False
        self.value_at = now
        self.charge = 0.0
        self.reads_at = now  # When it will have read what it has.
        self.trace: SteppedCall | None = None
        self.moved: Moved | None = None
        self._context = contextvars.copy_context()

    def run(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        return self._context.run(function, *arguments)


class _Run:
    def __init__(
        self, model: Any, options: ContinuousOptions, step_s: float | Callable[[int], float]
    ) -> None:
        self._model = model
        self._step_s = step_s
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._engine = Engine(model, options, lambda: self._now, self._admit_later, self._stop)
        self._loop: PausingLoop | None = None  # Of what is async.
        self._admissions: dict[Entry[Any], asyncio.Task[None]] = {}
        self.outcomes: list[Outcome] = []
        self.steps: list[Step] = []

    def expect(self, number: int, arrival: Arrival, at_s: float) -> None:
        self.outcomes.append(Outcome(arrival.request))
        self._at(at_s, lambda: self._arrive(number, arrival))

    def to_the_end(self) -> None:
        while True:
            while self._events and self._events[0][0] <= self._now:
                heapq.heappop(self._events)[2]()
            if self._admissions:
                self._own_loop().turn(self._now)
            chosen = self._engine.prepare()
            self._hand_out()
            if chosen:
                self._step(chosen)
                self._hand_out()
                continue
            times = [self._events[0][0]] if self._events else []
            wakeup = self._engine.next_wakeup()
            times += [] if wakeup is None else [wakeup]
            if self._admissions and (wakeup := self._own_loop().wakes_s) is not None:
                times.append(wakeup)
            if not times:
                break
            self._now = max(self._now, min(times))
        if not self._engine.is_idle:
            raise RuntimeError(f"requests are left that nothing brings forward: {self._left()}")

    def close(self) -> None:
        if self._loop is not None:
            for admission in self._admissions.values():
                admission.cancel()
            self._loop.turn(self._now)
            self._loop.close()

    def _left(self) -> list[int]:
        return [n for n, each in enumerate(self.outcomes) if each.ended_s is None]

    def _at(self, time_s: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (time_s, next(self._count), event))

    def _arrive(self, number: int, arrival: Arrival) -> None:
        call = _Call(number, arrival, self._now)
        if arrival.leaves_s is not None:
            self._at(self._now + arrival.leaves_s, lambda: self._engine.leave(call))
        self._engine.arrive(call)

    def _step(self, chosen: list[Entry[Any]]) -> None:
        self.steps.append(Step(self._now, tuple(entry.call.number for entry in chosen)))
        steps = self._engine.stepping(chosen)
        try:
            states = next(steps)
            while True:
                count = len(states)
                try:
                    results = self._awaited(self._model.step(states))
                except Exception as error:
                    self._pass_step(count)
                    states = steps.throw(error)
                else:
                    self._pass_step(count)
                    states = steps.send(results)
        except StopIteration:
            pass

    def _pass_step(self, count: int) -> None:
        self._now += self._step_s(count) if callable(self._step_s) else self._step_s

    def _hand_out(self) -> None:
        for call, values, is_ended, error in self._engine.deliveries():
            outcome = self.outcomes[call.number]
            if values:
                if outcome.first_s is None:
                    outcome.first_s = self._now
                outcome.values += values if call.wants_each else values[-1:]
            for _ in values:
                call.reads_at = max(call.reads_at, self._now) + call.arrival.reads_s
                self._at(call.reads_at, partial(self._read, call))
            if is_ended:
                outcome.error, outcome.ended_s = error, self._now

    def _read(self, call: _Call) -> None:
        call.read += 1
        if call.is_parked:
            self._engine.read_on(call)

    def _admit_later(self, entry: Entry[Any], start: Callable[[], Awaitable[Any]]) -> None:
        loop = self._own_loop()
        self._admissions[entry] = loop.create_task(self._admission(entry, start))
        loop.turn(self._now)

    async def _admission(self, entry: Entry[Any], start: Callable[[], Awaitable[Any]]) -> None:
        state: Any = None
        failure: Exception | None = None
        try:
            state = await start()
        except (Exception, asyncio.CancelledError) as error:
            failure = as_exception(error)
        del self._admissions[entry]
        self._engine.on_admitted(entry, state, failure)

    def _stop(self, entry: Entry[Any]) -> None:
        self._admissions[entry].cancel()
        self._own_loop().turn(self._now)

    def _awaited(self, result: Any) -> Any:
        return self._own_loop().run_to_the_end(result) if inspect.isawaitable(result) else result

    def _own_loop(self) -> PausingLoop:
        if self._loop is None:
            self._loop = PausingLoop()
        return self._loop


# A class whose own engine batches: its driver and its callers, on a loop in virtual time.


class _Jumping:
    """A selector that never waits: it moves the clock on by the time that it was to wait."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready, which can only be a task of this thread."""
        ready = self._selector.select(0)
        if not ready and timeout is None:
            raise RuntimeError(
                "requests are left that nothing brings forward in virtual time; an engine that "
                "waits for threads, processes or sockets is tested with pyserve.testing.client"
            )
        if not ready and timeout is not None:
            self.now_s += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers fire at once, in their order.

    Attributes:
        refusal: What a thread was told that wanted something of it; ``None``: none did.
    """

    def __init__(self) -> None:
        self._jumping = _Jumping()
        self._thread = threading.get_ident()
        self.refusal: RuntimeError | None = None
        super().__init__(self._jumping)  # type: ignore[arg-type]  # it stands for one

    def time(self) -> float:
        """See ``AbstractEventLoop``."""
        return self._jumping.now_s

    def call_soon_threadsafe(  # type: ignore[override]  # its arguments pass through
        self, callback: Callable[..., object], *arguments: Any, **keywords: Any
    ) -> asyncio.Handle:
        """See ``AbstractEventLoop``; for this thread alone, as no other has this time."""
        if threading.get_ident() != self._thread:
            raise self._refuse()
        return super().call_soon_threadsafe(callback, *arguments, **keywords)

    def run_in_executor(self, *_arguments: object) -> Any:
        """Refuse; see ``call_soon_threadsafe``."""
        raise self._refuse()

    def _refuse(self) -> RuntimeError:
        self.refusal = RuntimeError(
            "drive() runs in virtual time, in which threads have no place; test an engine that "
            "needs threads with pyserve.testing.client"
        )
        return self.refusal


def _drive_streams(
    model: Any, arrivals: Iterable[tuple[Arrival, float]], options: ContinuousOptions
) -> Driven:
    outcomes: list[Outcome] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        driver = StreamDriver(model, options, loop.time)
        try:
            async with asyncio.TaskGroup() as callers:
                for arrival, at_s in arrivals:
                    outcomes.append(Outcome(arrival.request))
                    callers.create_task(_call_at(at_s, driver, arrival, outcomes[-1]))
        finally:
            await driver.close()

    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(run())
        loop = runner.get_loop()
    if isinstance(loop, _VirtualLoop) and loop.refusal is not None:
        raise loop.refusal
    return Driven(outcomes, ())


async def _call_at(at_s: float, driver: StreamDriver, arrival: Arrival, outcome: Outcome) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(at_s)
    deadline_s, leaves_s = arrival.deadline_s, arrival.leaves_s
    call = Call(
        arrival.request,
        driver,
        wants_each=arrival.wants_each,
        client=arrival.client,
        priority=arrival.priority,
        deadline=math.inf if deadline_s is None else loop.time() + deadline_s,
    )
    driver.submit(call)
    try:
        async with asyncio.timeout(leaves_s) as stay:
            await _read_all(call, arrival, outcome)
    except Exception as error:  # As its caller would see it.
        outcome.error = RequestCancelled("the call was cancelled") if stay.expired() else error
    finally:
        call.close()
    outcome.ended_s = loop.time()


async def _read_all(call: Call, arrival: Arrival, outcome: Outcome) -> None:
    loop = asyncio.get_running_loop()
    if not arrival.wants_each:
        outcome.values.append(await call.wait_last())
        outcome.first_s = loop.time()
        return
    with contextlib.suppress(StopAsyncIteration):
        while True:
            outcome.values.append(await call.__anext__())
            if outcome.first_s is None:
                outcome.first_s = loop.time()
            await asyncio.sleep(arrival.reads_s)
