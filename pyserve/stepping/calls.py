"""One call of a continuously batched class, as its caller sees it on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyserve.errors import BatchError
from pyserve.request import CURRENT
from pyserve.stepping.moving import Moved

if TYPE_CHECKING:
    from pyserve.observe.traces.shared_work import SteppedCall


class Driver(Protocol):
    """Takes what callers do to the thread that steps."""

    def leave(self, call: Call) -> None:
        """The caller has gone."""

    def read_on(self, call: Call) -> None:
        """The caller of a parked state has read."""


class Stepped(Protocol):
    """The engine's view of one request.

    Attributes:
        request: What ``admit`` takes.
        client, priority, deadline: As in ``Entry``.
        wants_each: Whether its caller reads every value, and not the last one alone.
        sent, read: Values that have left the engine, and that the caller has taken.
        last: Those of the newest ``Emit``, of a call that wants the last one alone.
        skip: Values that are not sent, because the caller has had them before a preemption.
        is_admitted: It has had a state.
        charge: The most that it has taken of the budget, or will; 0: its class has no ``cost``.
        value_at: When its newest value was there, or before the first one when it arrived.
        is_parked: The engine waits for the caller to read.
        trace: The span of the call, if it is traced.
        moved: From what it goes on, if it was admitted at another replica.
    """

    request: Any
    client: str
    priority: int
    deadline: float
    wants_each: bool
    sent: int
    read: int
    last: Sequence[object]
    skip: int
    value_at: float
    is_admitted: bool
    is_parked: bool
    charge: float
    trace: SteppedCall | None
    moved: Moved | None

    def run(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Call a function as code of this request."""


def beyond(call: Stepped, values: Sequence[object]) -> Sequence[object]:
    """Return the values that a call has not had, which began again after a preemption."""
    skipped = min(call.skip, len(values))
    call.skip -= skipped
    return values[skipped:]


# Values for one call, whether it ends with them, and with what it fails.
Delivery = tuple[Any, Sequence[object], bool, BaseException | None]


class Call:
    """Waits for the values of one request. Made and used on the driver's event loop.

    Its values are read one by one with ``anext``, or the last is awaited with ``wait_last``.

    Args:
        request: What ``admit`` takes.
        driver: Who runs it.
        wants_each: Whether it is iterated.
        client, priority, deadline: See ``Entry``; the deadline in seconds of ``time.monotonic``.
        trace: Its span, if it is traced.
        moved: From what it goes on, if it was admitted at another replica.

    Attributes:
        context: In which ``admit``, ``cost``, ``key`` and ``bound`` run.
        sent, read, last, skip, is_parked, is_admitted, trace, moved, value_at, charge: See
            ``Stepped``.
    """

    __slots__ = (
        "_driver",
        "_error",
        "_is_ended",
        "_loop",
        "_noted",
        "_source",
        "_values",
        "_waiter",
        "charge",
        "client",
        "context",
        "deadline",
        "is_admitted",
        "is_parked",
        "last",
        "moved",
        "priority",
        "read",
        "request",
        "sent",
        "skip",
        "trace",
        "value_at",
        "wants_each",
    )

    def __init__(
        self,
        request: Any,
        driver: Driver,
        *,
        wants_each: bool,
        client: str = "",
        priority: int = 0,
        deadline: float = math.inf,
        trace: SteppedCall | None = None,
        moved: Moved | None = None,
    ) -> None:
        self.request = request
        self.trace = trace
        self.wants_each = wants_each
        self.client = client
        self.priority = priority
        self.deadline = deadline
        self.context = contextvars.copy_context()
        self.moved = moved
        self.sent = self.read = 0
        self.skip = 0 if moved is None else moved.skip
        self.last: Sequence[object] = () if moved is None else moved.last
        self.is_parked = self.is_admitted = False
        self.value_at = 0.0
        self.charge = self._noted = 0.0
        self._source = CURRENT.get()
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._values: deque[object] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_ended = False
        self._error: BaseException | None = None

    def run(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Call a function in the context of the request."""
        return self.context.run(function, *arguments)

    def deliver(
        self, values: Sequence[object], is_ended: bool, error: BaseException | None
    ) -> None:
        """Take values, and perhaps the end, from the driver."""
        if self._is_ended:  # Its caller has gone.
            return
        if self.charge != self._noted and self._source is not None:
            self._noted = self.charge
            self._source.note_cost(self.charge)
        self._values.extend(values)
        self._is_ended = is_ended
        self._error = error
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    @property
    def is_ended(self) -> bool:
        """Whether no more values come, because it has ended or its caller has gone."""
        return self._is_ended

    # --- the caller -------------------------------------------------------------------------

    async def wait_admitted(self) -> bool:
        """Wait until the request has a state; return whether it had one before it ended."""
        while not (self.is_admitted or self._is_ended):
            await self._news()
        return self.is_admitted

    async def wait_last(self) -> object:
        """Return the last value. Cancelling it ends the request before the next step.

        Raises:
            BatchError: The request ended without a value.
            Exception: What it failed with.
        """
        try:
            while not self._is_ended:
                await self._news()
        finally:
            self.close()
        if self._error is not None:
            raise self._error
        if not self._values:
            raise BatchError(
                "the request ended without a value; let its last result be Done(value)"
            )
        return self._values[-1]

    async def __anext__(self) -> object:
        while not self._values:
            if self._is_ended:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            await self._news()
        self.read += 1
        if self.is_parked:
            self._driver.read_on(self)
        return self._values.popleft()

    def close(self) -> None:
        """End the request before the next step, if it has not ended by itself. Idempotent."""
        if not self._is_ended:
            self._is_ended = True
            self._values.clear()
            self._driver.leave(self)

    async def _news(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("two tasks wait for the values of one call; let one of them read")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
