"""Runs a class whose own engine batches: hands requests over to it, and its values out.

Such a class has no ``step``. Its ``admit`` yields the values of one request, or gives them to a
callback. Admission, limits, order and ends are those of the scheduler, which is asked for no steps;
nothing is preempted, since only the engine knows what it holds. All runs on the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from pyserve.errors import Abort
from pyserve.observe.separate import Separate
from pyserve.signatures import read_signature
from pyserve.stepping.endings import as_exception, odd_emission
from pyserve.stepping.engine import Engine
from pyserve.stepping.entries import Entry, Phase
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.values import Done, Emit, Failed

if TYPE_CHECKING:
    from pyserve.observe.traces.shared_work import StepTraces

# An engine that calls back cannot be held: so many times the slack may be unread, since several
# values come at once where the loop is busy. Arbitrary.
_UNREAD_PER_SLACK = 16
_WITHOUT_STATE = frozenset({Phase.WAITING, Phase.ADMITTING})


class Emitter:
    """The callback of a request: takes what ``step`` would return for it, from any thread.

    The loop iterates over the values.

    Args:
        loop: Of the driver.
        slack: Of the class.
        name: Of the class.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, slack: int, name: str) -> None:
        self._loop = loop
        self._most = _UNREAD_PER_SLACK * slack
        self._name = name
        self._changing = threading.Lock()
        self._values: deque[object] = deque()
        self._news = asyncio.Event()
        self._is_told = False  # The loop will look.
        self._is_over = False
        self._failure: BaseException | None = None

    def __call__(self, result: Emit | Failed) -> bool:
        """Take values, or the end.

        Args:
            result: An ``Emit``, a ``Done`` or a ``Failed``.

        Returns:
            Whether more is wanted; not after the end, nor when the caller has gone.

        Raises:
            BatchError: It is something else.
        """
        if not isinstance(result, Emit | Failed):
            raise odd_emission(self._name, result)
        with self._changing:
            if self._is_over:
                return False
            self._take(result)
            if not self._is_told:
                self._is_told = True
                try:
                    self._loop.call_soon_threadsafe(self._wake)
                except RuntimeError:  # The loop has ended, and all callers with it.
                    self._is_over = True
            return not self._is_over

    def close(self) -> None:
        """Take no more."""
        with self._changing:
            self._is_over = True

    def __aiter__(self) -> AsyncIterator[object]:
        return self

    async def __anext__(self) -> object:
        while True:
            with self._changing:
                if self._values:
                    return self._values.popleft()
                is_over, failure = self._is_over, self._failure
                self._news.clear()
            if failure is not None:
                raise failure
            if is_over:
                raise StopAsyncIteration
            await self._news.wait()

    def _take(self, result: Emit | Failed) -> None:
        if isinstance(result, Failed):
            failure = result.exception
            is_end = isinstance(failure, StopIteration | StopAsyncIteration)
            self._failure = as_exception(failure) if is_end else failure
        elif len(self._values) + len(result.values) > self._most:
            self._failure = Abort(
                StatusCode.RESOURCE_EXHAUSTED,
                f"{self._most} values of a request of {self._name} wait for its caller, who does "
                f"not read them; read faster, or let the class have a higher slack",
            )
        else:
            self._values.extend(result.values)
        self._is_over = self._failure is not None or isinstance(result, Done)

    def _wake(self) -> None:
        with self._changing:
            self._is_told = False
        self._news.set()


class StreamEngine(Engine):
    """One instance whose engine batches, its scheduler, and what it has for its callers.

    Args:
        model: The instance.
        options: The limits.
        clock: Returns the time that deadlines are in.
        start: Hands the request of an entry over; ``on_admitted``, ``on_value`` and ``on_end`` are
            then called for it.
        stop: Ends that; ``on_end`` is called when it has ended.
        traces: See ``Engine``.
    """

    def __init__(
        self,
        model: Any,
        options: ContinuousOptions,
        clock: Callable[[], float],
        start: Callable[[Entry[Any]], None],
        stop: Callable[[Entry[Any]], None],
        traces: StepTraces | None = None,
    ) -> None:
        super().__init__(model, options, clock, lambda entry, _: start(entry), stop, traces)
        self._start = start
        self._stopping: set[Entry[Any]] = set()

    def prepare(self) -> list[Entry[Any]]:
        """End and admit requests; the engine makes the steps."""
        scheduler, now = self._scheduler, self._clock()
        for entry, why in scheduler.ending(now):
            if entry not in self._stopping:
                self._end_early(entry, self._ended(why, entry))
        while (admitted := scheduler.admitting(now)) is not None:
            self._start(admitted)
        self._report_costs()
        return []

    def abandon(self, error: BaseException) -> None:
        """End all calls with an error, and let the engine's requests be stopped."""
        own = Separate()
        for entry in tuple(self._entries.values()):
            if entry not in self._stopping:
                self._end_early(entry, own(error))

    def wants_more(self, entry: Entry[Any]) -> bool:
        """Say whether a request that was handed over goes on."""
        is_ending = entry.stopped is not None or entry in self._stopping
        return entry.phase is not Phase.ENDED and not is_ending

    def on_value(self, entry: Entry[Any], value: object) -> None:
        """Take a value of a request that was handed over."""
        if not self.wants_more(entry):
            return
        self._emit(entry, (value,), self._clock())
        if self._cost is not None and _can_cost(entry.state):
            self._ask_costs([entry])

    def on_end(self, entry: Entry[Any], error: BaseException | None) -> None:
        """Take the end of a request that was handed over; ``error``: what it failed with."""
        if entry in self._stopping:  # Its caller has been answered.
            self._stopping.discard(entry)
            self._forget(entry)
        elif entry.phase is Phase.ENDED:  # It failed by what it cost, or was never admitted.
            return
        elif error is not None:
            self._fail(entry, error)
        else:
            self._finish(entry, (), self._clock())

    def _end_early(self, entry: Entry[Any], error: BaseException) -> None:
        """Answer a caller, who need not wait until the engine has let go of the request."""
        if entry.phase in _WITHOUT_STATE:
            self._fail(entry, error)
            return
        self._end_call(entry.call, (), error)
        self._stopping.add(entry)
        self._stop(entry)

    def _cost_held(self, entry: Entry[Any]) -> float:
        return super()._cost_held(entry) if _can_cost(entry.state) else entry.cost


def _can_cost(state: object) -> bool:
    """Say whether ``cost`` can be asked of a state; a generator says nothing of itself."""
    return state is not None and type(state) is not AsyncGeneratorType


def batches_itself(target: type) -> bool:
    """Say whether a continuously batched class has an engine that batches, and no ``step``."""
    return not callable(getattr(target, "step", None))


def takes_emit(admit: Callable[..., Any]) -> bool:
    """Say whether a bound ``admit`` takes the callback besides the request."""
    return len(read_signature(admit).parameters) > 1
