"""Runs a continuously batched class by its scheduler: calls its methods, hands its values out.

It starts no thread and waits for nothing, so that the same code runs on a thread, on an event loop
and in virtual time; see ``drivers`` and ``pyserve.testing.drive``. All methods are for the one
thread that steps.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from pyserve.batching.options import read_number
from pyserve.errors import BatchError
from pyserve.interrupts import raise_ctrl_c
from pyserve.observe.separate import Separate
from pyserve.stepping.calls import Delivery, Stepped, beyond
from pyserve.stepping.endings import as_exception, ended, odd_result, refused
from pyserve.stepping.entries import End, Entry, Load, Phase
from pyserve.stepping.measures import CostReports, StepMeasures, Tell
from pyserve.stepping.moving import HOPS_MAX, Moved
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.scheduler import Scheduler
from pyserve.stepping.values import Done, Emit, Failed

if TYPE_CHECKING:
    from pyserve.observe.traces.shared_work import RunningStep, StepTraces

_LOGGER = logging.getLogger(__name__)


class Engine:
    """One instance, its scheduler, and what it has for its callers.

    Args:
        model: The instance.
        options: The limits.
        clock: Returns the time that deadlines are in.
        admit_later: Awaits an ``async def admit`` or ``resume`` in the context of its request,
            and then calls ``on_admitted`` on the engine's thread with the result or exception.
        stop: Cancels that; ``on_admitted`` is still called if there is a result.
        traces: Makes the spans of steps; ``None``: nothing is traced.
    """

    def __init__(
        self,
        model: Any,
        options: ContinuousOptions,
        clock: Callable[[], float],
        admit_later: Callable[[Entry[Any], Callable[[], Awaitable[Any]]], None],
        stop: Callable[[Entry[Any]], None],
        traces: StepTraces | None = None,
    ) -> None:
        self.options = options
        self.model = model
        self._name = type(model).__qualname__
        self._clock = clock
        self._admit_later = admit_later
        self._stop = stop
        self._traces = traces
        self._scheduler: Scheduler[Any] = Scheduler(options)
        self._entries: dict[Any, Entry[Any]] = {}
        self._cost = optional(model, "cost")
        self._bound = optional(model, "bound")
        self._key = optional(model, "key")
        self._release = optional(model, "release")
        self._preempt = optional(model, "preempt")
        self._out: list[Delivery] = []
        self._sends_away = False
        self._moves: list[tuple[Entry[Any], Moved]] = []
        self._staying: set[Entry[Any]] = set()  # No other replica has taken them.
        self._costs: CostReports | None = None
        self._arrivals = 0
        self.measures = StepMeasures()

    # --- what happens to calls --------------------------------------------------------------

    def arrive(self, call: Stepped) -> None:
        """Let a new call wait, or refuse it."""
        call.value_at = self._clock()
        try:
            entry: Entry[Any] = Entry(
                call,
                client=call.client,
                priority=call.priority,
                deadline=call.deadline,
                key=self._key_of(call),
                cost=call.run(self._cost_of, _first_of(call)),
                bound=self._bound_of(call),
            )
            entry.snapshot = None if call.moved is None else call.moved.snapshot
        except BaseException as error:  # An exit would end the thread of all others.
            raise_ctrl_c(error)
            self._end_call(call, (), as_exception(error))
            return
        refusal = self._scheduler.add(entry)
        if refusal is not None:
            refusing = refused(self._name, self.options, refusal, entry)
            self._end_call(call, (), refusing)
            return
        self._entries[call] = entry
        self._arrivals += 1
        if self._cost is not None:
            call.charge = entry.bound if self.options.reserve == "bound" else entry.cost

    def tell(self, tell: Tell) -> None:
        """Report what requests cost between two steps, if they cost anything but 1 each."""
        if self._cost is not None:
            self._costs = CostReports(self.options, tell)

    def leave(self, call: Stepped) -> None:
        """End a call whose caller has gone, before the next step."""
        entry = self._entries.get(call)
        if entry is not None:
            self._scheduler.cancel(entry)

    def read_on(self, call: Stepped) -> None:
        """Go on with a call whose caller was slow, and has read."""
        entry = self._entries.get(call)
        if entry is not None and call.is_parked and call.sent - call.read <= self._low_mark:
            call.is_parked = False
            call.value_at = self._clock()  # The caller's own delay is no time of a value.
            self._scheduler.unpark(entry)
            if call.trace is not None:
                call.trace.note("read on")

    def drain(self, *, sends_away: bool = False) -> None:
        """Refuse calls that have not been admitted; the others end by themselves.

        Args:
            sends_away: Preempt the others, and leave them in ``moves`` for another replica.
        """
        self._scheduler.drain()
        self._sends_away = sends_away

    def take_back(self, entry: Entry[Any]) -> None:
        """Go on here with a call that no other replica has taken."""
        self._staying.add(entry)
        self._scheduler.unpark(entry)

    def end_moved(self, entry: Entry[Any], error: BaseException | None) -> None:
        """Take the end of a call that has gone on elsewhere; its caller has had it already."""
        if entry.phase is not Phase.ENDED:
            self._forget(entry)
            if entry.call.trace is not None:
                entry.call.trace.end(entry.call.sent, error)

    def abandon(self, error: BaseException) -> None:
        """End all calls with an error, and release their states."""
        own = Separate()
        for entry in tuple(self._entries.values()):
            self._fail(entry, own(error))

    # --- between two steps ------------------------------------------------------------------

    def prepare(self) -> list[Entry[Any]]:
        """Preempt, end and admit; return the states that share the next step."""
        scheduler, now = self._scheduler, self._clock()
        if self._sends_away:
            self._send_away()
        for entry in scheduler.preempting(now):
            self._preempt_one(entry)
        for entry, why in scheduler.ending(now):
            self._fail(entry, self._ended(why, entry))
        while (admitted := scheduler.admitting(now)) is not None:
            self._admit(admitted)
        self._report_costs()
        return scheduler.choose()

    def stepping(self, chosen: list[Entry[Any]]) -> Generator[list[Any], Any, None]:
        """Yield the states of each step to make, and take what it returned or raised.

        With ``isolate`` a step that raised is made again in halves.
        """
        parts = [chosen]
        began = self._clock()
        is_clean = True
        while parts:
            part = parts.pop()
            span = None if self._traces is None else self._begin_span(self._traces, part)
            try:
                results = yield [entry.state for entry in part]
            except BaseException as error:
                is_clean = False
                if span is not None:
                    span.end(error)
                if self.options.isolate and len(part) > 1 and isinstance(error, Exception):
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                else:
                    self._fail_part(part, error)
            else:
                if span is not None:
                    span.end(None)
                self._take(part, results)
        duration_s = self._clock() - began
        self.measures.step(len(chosen), duration_s)
        if is_clean:
            self._scheduler.stepped(chosen, duration_s)

    def on_admitted(self, entry: Entry[Any], state: object, error: BaseException | None) -> None:
        """Take what ``admit`` or ``resume`` returned or raised."""
        if entry.phase is Phase.ENDED:  # Meanwhile, and its caller has been answered.
            if error is None:
                self._release_state(state)
            return
        if error is None:
            entry.state = state
            try:
                cost = self._cost_held(entry)
            except Exception as raised:
                entry.state = None
                self._release_state(state)
                error = raised
            else:
                self._scheduler.admitted(entry, state, cost)
                entry.call.is_admitted = True
                if entry.call.trace is not None:
                    entry.call.trace.note("admitted")
                self._out.append((entry.call, (), False, None))
                return
        self._scheduler.end(entry)
        self._entries.pop(entry.call, None)
        self._end_call(entry.call, (), error)

    # --- what is known ----------------------------------------------------------------------

    def deliveries(self) -> list[Delivery]:
        """Take what there is for callers."""
        found, self._out = self._out, []
        return found

    def moves(self) -> list[tuple[Entry[Any], Moved]]:
        """Take the calls that are to go on elsewhere, each after its deliveries."""
        found, self._moves = self._moves, []
        return found

    @property
    def is_idle(self) -> bool:
        """Whether no call is here."""
        return not self._entries

    def next_wakeup(self) -> float | None:
        """Return when ``prepare`` has something to do by itself; ``None``: never."""
        return self._scheduler.next_wakeup(self._clock())

    def load(self) -> Load:
        """Return what is held now."""
        return self._scheduler.load()

    # --- inside -----------------------------------------------------------------------------

    @staticmethod
    def _begin_span(traces: StepTraces, part: list[Entry[Any]]) -> RunningStep | None:
        members = [entry.call.trace for entry in part if entry.call.trace is not None]
        return traces.begin(members, size=len(part), key=part[0].key)

    def _report_costs(self) -> None:
        if self._costs is not None:
            self._costs.report(self._scheduler.load(), self._arrivals, len(self._entries))

    @property
    def _low_mark(self) -> int:
        return self.options.slack // 2

    def _key_of(self, call: Stepped) -> Hashable:
        if self._key is None:
            return None
        key: Hashable = call.run(self._key, call.request)
        hash(key)  # Here, where only this caller fails.
        return key

    def _cost_of(self, what: object) -> float:
        return 1.0 if self._cost is None else read_number(self._cost(what), "continuous: cost")

    def _cost_held(self, entry: Entry[Any]) -> float:
        """Return what a request costs whose state is new."""
        return self._cost_of(entry.state)

    def _bound_of(self, call: Stepped) -> float:
        if self._bound is None:
            return 0.0
        return read_number(call.run(self._bound, call.request), "continuous: bound")

    def _admit(self, entry: Entry[Any]) -> None:
        call, snapshot = entry.call, entry.snapshot
        if snapshot is None:
            function, argument = self.model.admit, call.request
        else:
            function, argument = self.model.resume, snapshot
        if inspect.iscoroutinefunction(function):
            self._admit_later(entry, lambda: function(argument))
            return
        try:
            state = call.run(function, argument)
        except Exception as error:
            self.on_admitted(entry, None, error)
        except BaseException as error:  # It would end the thread of all others.
            _LOGGER.exception("%s raised in admit", type(error).__name__)
            self.on_admitted(entry, None, as_exception(error))
        else:
            self.on_admitted(entry, state, None)

    def _send_away(self) -> None:
        """Preempt what has been admitted, and leave it for another replica."""
        for entry in self._scheduler.movable():
            call = entry.call
            hops = 1 if call.moved is None else call.moved.hops + 1
            if entry in self._staying or hops > HOPS_MAX:
                continue
            if entry.phase is Phase.WAITING:
                self._scheduler.send_away(entry)
            else:
                self._preempt_one(entry, moves=True)
                if entry.phase is Phase.ENDED:  # `preempt` has raised.
                    continue
            call.is_parked = False
            if call.trace is not None:
                call.trace.note("moved")
            moved = Moved(
                request=call.request,
                snapshot=entry.snapshot,
                skip=call.skip,
                last=call.last,
                hops=hops,
            )
            self._moves.append((entry, moved))

    def _preempt_one(self, entry: Entry[Any], *, moves: bool = False) -> None:
        state, entry.state = entry.state, None
        call = entry.call
        try:
            try:
                snapshot = None if self._preempt is None else self._preempt(state)
            finally:
                self._release_state(state)
            cost = self._cost_of(call.request if snapshot is None else snapshot)
        except Exception as error:
            self._scheduler.end(entry)
            self._entries.pop(call, None)
            self._end_call(call, (), error)
            return
        if call.trace is not None and not moves:
            call.trace.note("preempted")
        if snapshot is None:
            call.last = ()
            call.skip = call.sent  # It begins again: what the caller has is not sent twice.
        self._scheduler.preempted(entry, snapshot, cost, moves=moves)

    def _take(self, part: list[Entry[Any]], results: object) -> None:
        if not isinstance(results, Sequence) or len(results) != len(part):
            found = f"{len(results)}" if isinstance(results, Sequence) else repr(results)
            self._fail_part(
                part,
                BatchError(
                    f"{self._name}.step returned {found} for {len(part)} "
                    f"states; return a list with one Emit, Done, Failed or None for each"
                ),
            )
            return
        now = self._clock()
        for entry, result in zip(part, results, strict=True):
            if result is None or entry.stopped is not None:
                continue
            if isinstance(result, Done):  # First, since it is an Emit too.
                self._finish(entry, result.values, now)
            elif isinstance(result, Emit):
                self._emit(entry, result.values, now)
            elif isinstance(result, Failed):
                self._fail(entry, result.exception)
            else:
                self._fail(entry, odd_result(self._name, result))
        if self._cost is not None:
            self._ask_costs(part)

    def _emit(self, entry: Entry[Any], values: Sequence[object], now: float) -> None:
        """Hand values out to a caller who goes on to wait for more."""
        call = entry.call
        if not call.wants_each:
            call.last = values or call.last
            return
        if call.skip:
            values = beyond(call, values)
        if values:
            self.measures.value(call, now)
            call.sent += len(values)
            self._out.append((call, values, False, None))
            if call.sent - call.read > self.options.slack:
                self._park(entry)

    def _finish(self, entry: Entry[Any], values: Sequence[object], now: float) -> None:
        """Hand the last values out, and end the request."""
        call = entry.call
        if not call.wants_each:
            values = values or call.last
        elif call.skip:
            values = beyond(call, values)
        if values and call.wants_each:
            self.measures.value(call, now)
        self._forget(entry)
        self._end_call(call, values, None)

    def _fail(self, entry: Entry[Any], error: BaseException) -> None:
        self._forget(entry)
        self._end_call(entry.call, (), error)

    def _end_call(
        self, call: Stepped, values: Sequence[object], error: BaseException | None
    ) -> None:
        """Hand out the end of a call; each has one."""
        if isinstance(error, Exception):
            error = as_exception(error)
        if call.trace is not None:
            call.trace.end(call.sent + len(values), error)
        self._out.append((call, values, True, error))

    def _ended(self, why: End, entry: Entry[Any]) -> Exception:
        return ended(self._name, self.options, why, entry)

    def _park(self, entry: Entry[Any]) -> None:
        call = entry.call
        call.is_parked = True
        # The caller reads on another thread: one of both sees what the other has written.
        if call.sent - call.read <= self.options.slack:
            call.is_parked = False
        else:
            self._scheduler.park(entry, self._clock())
            if call.trace is not None:
                call.trace.note("parked")

    def _ask_costs(self, part: list[Entry[Any]]) -> None:
        cost_of, set_cost, ended = self._cost, self._scheduler.set_cost, Phase.ENDED
        assert cost_of is not None, "it is only called where there is one"
        for entry in part:
            if entry.phase is ended or entry.stopped is not None:
                continue
            try:
                cost = cost_of(entry.state)
                if type(cost) is not int or not 0 <= cost < 1 << 53:  # All floats.
                    cost = read_number(cost, "continuous: cost")
            except Exception as error:
                self._fail(entry, error)
            else:
                if cost != entry.cost:
                    set_cost(entry, cost)
                    entry.call.charge = max(entry.call.charge, cost)

    def _fail_part(self, part: list[Entry[Any]], error: BaseException) -> None:
        if not isinstance(error, Exception):
            _LOGGER.error("%s raised in step", type(error).__name__, exc_info=error)
        raised, own = as_exception(error), Separate()
        for entry in part:
            if entry.phase is not Phase.ENDED:
                self._fail(entry, own(raised))

    def _forget(self, entry: Entry[Any]) -> None:
        """End a request everywhere, and release its state if it has one."""
        is_held, is_admitting = entry.phase in _WITH_STATE, entry.phase is Phase.ADMITTING
        state, entry.state = entry.state, None
        self._scheduler.end(entry)
        self._entries.pop(entry.call, None)
        self._staying.discard(entry)
        if is_held:
            self._release_state(state)
        elif is_admitting:
            self._stop(entry)

    def _release_state(self, state: object) -> None:
        if self._release is None:
            return
        try:
            self._release(state)
        except BaseException as error:  # It would end the thread of all others.
            raise_ctrl_c(error)
            _LOGGER.exception("%s.release raised", self._name)


def optional(model: Any, name: str) -> Callable[..., Any] | None:
    """Return an optional method of an instance; ``None``: its class has none of that name.

    An attribute that only the instance has, such as ``self.client = Client()``, is not meant.
    """
    if not inspect.isroutine(getattr(type(model), name, None)):
        return None
    method: Callable[..., Any] = getattr(model, name)
    return method


_WITH_STATE = frozenset({Phase.RUNNING, Phase.PARKED})


def _first_of(call: Stepped) -> object:
    """Return what a call begins from, of which its cost is asked."""
    if call.moved is None or call.moved.snapshot is None:
        return call.request
    return call.moved.snapshot
