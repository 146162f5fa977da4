"""One run of a batched function: its context, one result for each item, its end without waiters."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from pyserve.batching.lanes import Batch
from pyserve.bridge import end_if_forked
from pyserve.errors import BatchError
from pyserve.interrupts import EXITS, is_ctrl_c
from pyserve.observe.delays import asks
from pyserve.observe.failures import as_answer, exc_info_of, failure_logger
from pyserve.observe.separate import Separate
from pyserve.request import CURRENT, Request, Source

# The user's function: what it takes and returns is checked by kind and length, not by type.
Function = Callable[..., Awaitable[Any]]


class Caller(Protocol):
    """Who waits for one result: a future, or what has this much of one."""

    def done(self) -> bool:
        """Return whether it was answered or waits no more."""

    def cancel(self) -> bool:
        """Wait no more."""

    def set_result(self, result: Any, /) -> None:
        """Take the result, once."""

    def set_exception(self, error: BaseException, /) -> None:
        """Take an exception in place of the result."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call ``callback`` in a later turn of the loop than that in which it is done."""


class Call:
    """One call that waits for its result.

    Attributes:
        arguments: In the order of the function's parameters.
        caller: Cancelling it takes the call out of its batch.
        source: Of the caller's request, ``None`` outside of one.
    """

    __slots__ = ("arguments", "caller", "source")

    def __init__(
        self,
        arguments: tuple[object, ...],
        caller: Caller,
        source: Source | None,
    ) -> None:
        self.arguments = arguments
        self.caller = caller
        self.source = source

    def is_live(self) -> bool:
        """Return whether the caller still waits."""
        return not self.caller.done()

    def cancel(self) -> None:
        """Tell the caller that its call was cancelled, if it still waits."""
        self.caller.cancel()

    def fail(self, error: BaseException) -> None:
        """Answer the caller with an exception, if it still waits."""
        if not self.caller.done():
            self.caller.set_exception(error)


class HasArguments(Protocol):
    """A call of a batch."""

    @property
    def arguments(self) -> tuple[object, ...]:
        """In the order of the function's parameters."""


class BatchRequestSource:
    """Makes the request that a batch runs under when somebody asks for it."""

    __slots__ = ("_calls", "_is_cancelled", "_is_ended", "_made", "key")

    def __init__(self, batch: Batch[Any]) -> None:
        self._calls = batch.items
        self._made: Request | None = None
        self._is_cancelled = False
        self._is_ended = False
        self.key = batch.key

    def request(self) -> Request:
        """Return the request of the batch: its model, the latest deadline of its members."""
        if self._made is None:
            # A member without a request never stops to wait.
            sources = [call.source for call in self._calls]
            self._made = Request.of_batch(
                s.request() if s is not None else Request() for s in sources
            )
            if self._is_cancelled:
                self._made.cancel()
            if self._is_ended:
                self._made.end()
        return self._made

    def asks(self) -> bool:
        """Return whether a client of a member has asked where its call goes."""
        return any(asks(call.source) for call in self._calls)

    def request_id(self) -> str:
        """Return the id of the request of the batch, ``""`` if nobody has asked for that."""
        return "" if self._made is None else self._made.request_id

    def model_and_deadline(self) -> tuple[str, float | None]:
        """Return these two of the request of the batch."""
        return self.request().model_and_deadline()

    def note_cost(self, cost: float) -> None:
        """Do nothing: a batch has many callers."""

    def cancel(self) -> None:
        """Record that every member has gone, and cancel what the batch called."""
        self._is_cancelled = True
        if self._made is not None:
            self._made.cancel()

    def end(self) -> None:
        """Record that the run is over: what was kept for its request is given back."""
        self._is_ended = True
        if self._made is not None:
            self._made.end()


def context_of(source: BatchRequestSource) -> contextvars.Context:
    """Return the context of a run: a batch belongs to no single caller, so it is empty else."""
    context = contextvars.Context()
    context.run(CURRENT.set, source)
    return context


def columns_of(calls: Sequence[HasArguments]) -> list[list[object]]:
    """Return one list for each argument of the calls, in their order."""
    return [list(column) for column in zip(*[call.arguments for call in calls], strict=True)]


class Run:
    """Runs a function once on the arguments of a batch and answers its callers.

    All that it needs to begin is made with it, which is often while another batch runs.

    Args:
        function: Takes one list for each argument of a call.
        batch: The calls.
        label: What messages call the function.
        isolate_failures: Whether halves are run again after an exception.
        on_free: Called with the run when the function has ended, before the last callers are
            answered.
    """

    __slots__ = (
        "_columns",
        "_function",
        "_isolate",
        "_label",
        "_on_free",
        "batch",
        "context",
        "has_failed",
        "source",
        "task",
    )

    def __init__(
        self,
        function: Function,
        batch: Batch[Call],
        label: str,
        *,
        isolate_failures: bool,
        on_free: Callable[[Run], None],
    ) -> None:
        self._function = function
        self._label = label
        self._isolate = isolate_failures
        self._on_free = on_free
        self.batch = batch
        self.source = BatchRequestSource(batch)
        self.context = context_of(self.source)
        self._columns: list[list[object]] | None = columns_of(batch.items)
        self.task: asyncio.Task[None] | None = None
        self.has_failed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Start the run's task, with the function's first step."""
        self.task = begin(loop, self._main(), self.context)
        self._watch()
        return self.task

    def _watch(self, _: object = None) -> None:
        """Wait for any one caller that still waits; without one, end the run.

        One callback at a time is enough to see that nobody is left, and costs less than one
        for each caller.
        """
        assert self.task is not None
        if self.task.done():
            return
        for call in self.batch.items:
            if not call.caller.done():
                call.caller.add_done_callback(self._watch)
                return
        self.source.cancel()
        self.task.cancel()

    async def _main(self) -> None:
        groups = [self.batch.items]
        try:
            while groups:
                calls = groups.pop()
                if self.has_failed:  # It is a half, and some may have gone meanwhile.
                    calls = [call for call in calls if call.is_live()]
                results = await self._results(calls) if calls else ()
                if results is None:
                    middle = len(calls) // 2
                    groups += [calls[middle:], calls[:middle]]
                    continue
                if not groups:
                    self._on_free(self)
                if isinstance(results, Exception):
                    fail_each(calls, results, self._label)
                else:
                    _answer(calls, results, self._label)
        except asyncio.CancelledError:
            for call in self.batch.items:
                call.cancel()
            raise
        except BaseException as error:
            if not fail_all(self.batch.items, error, self._label):
                raise

    async def _results(self, calls: list[Call]) -> Sequence[Any] | Exception | None:
        """Return one result or exception for each call, or what fails all of them.

        ``None``: halves have to tell.
        """
        columns, self._columns = self._columns, None
        if columns is None:  # It is a half.
            columns = columns_of(calls)
        try:
            returned = await self._function(*columns)
        except Exception as error:
            self.has_failed = True
            return None if self._isolate and len(calls) > 1 else error
        try:
            return checked(returned, len(calls), self._label)
        except BatchError as error:  # No item is to blame.
            self.has_failed = True
            return error


def _answer(calls: list[Call], results: Sequence[Any], label: str) -> None:
    own = Separate()  # The same exception may stand for several items.
    for call, result in zip(calls, results, strict=True):
        if isinstance(result, BaseException):
            call.fail(sendable(own(as_answer(result)), label))
        elif not call.caller.done():  # Its caller may have gone while the batch ran.
            call.caller.set_result(result)


# Tasks whose first step runs where they are made, and not in the loop's next turn.
#
# A step of a model that waits for a turn of the loop waits for all that was scheduled before, such
# as the callers of the last step. `eager_start` of `asyncio.Task` does this from Python 3.12 on,
# and for tasks of asyncio's own class only.


def begin(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    context: contextvars.Context,
) -> asyncio.Task[None]:
    """Make a task of ``coroutine`` and run it to its first wait, as that task and in ``context``.

    Nothing is raised here: what the coroutine raises, its task does.
    """
    begun = _Begun(coroutine)
    task = loop.create_task(begun, context=context)
    if not begun.is_begun:  # Else a task factory has done it.
        maker = asyncio.current_task(loop)
        if maker is not None:
            _leave_task(loop, maker)
        _enter_task(loop, task)
        try:
            context.run(begun.begin)
        finally:
            _leave_task(loop, task)
            if maker is not None:
                _enter_task(loop, maker)
    return task


class _Begun(Coroutine[Any, Any, None]):
    """A coroutine whose first step may have run before its task asks for it."""

    __slots__ = ("_coroutine", "_end", "_has_news", "_waits_for", "is_begun")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self.is_begun = False
        # The outcome of the first step, until the task has received it.
        self._has_news = False
        self._waits_for: Any = None
        self._end: BaseException | None = None

    def begin(self) -> None:
        """Run the first step and keep its outcome."""
        self.is_begun = self._has_news = True
        try:
            self._waits_for = self._coroutine.send(None)
        except BaseException as end:
            self._end = end

    def send(self, value: Any) -> Any:
        """Go on; the first time, return what the first step waits for."""
        self.is_begun = True
        return self._told() if self._has_news else self._coroutine.send(value)

    def throw(self, error: Any, value: Any = None, trace: Any = None) -> Any:  # noqa: ARG002
        """Raise in the coroutine: its task was cancelled, perhaps before it knew of the wait."""
        if self._has_news:
            # A task cancels what it waits for, and the coroutine hears of it from there.
            waits_for = self._told()
            if waits_for is not None and waits_for.cancel():
                return waits_for
        return self._coroutine.throw(error)

    def _told(self) -> Any:
        self._has_news = False
        waits_for, end = self._waits_for, self._end
        self._waits_for = self._end = None
        if end is not None:
            raise end
        return waits_for

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Any:
        """Only tasks run it."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        # Debuggers and stack dumps look for ``cr_frame``, ``cr_code`` and their like.
        return getattr(self._coroutine, name)


_LOGGER = failure_logger(__name__)


def checked(results: object, size: int, label: str) -> Sequence[Any]:
    """Return ``results`` if it is a list, tuple or array whose first axis has the batch's length.

    Raises:
        BatchError: It is something else, or its length is another one.
    """
    if type(results) is list and len(results) == size:
        return results
    expected = f"return a list, tuple or array with one result for each of the {size} items"
    # What has keys is a mapping or a table; iterating it would give those away as results.
    is_sequence = hasattr(results, "__getitem__") and not (
        isinstance(results, str | bytes | bytearray | memoryview) or hasattr(results, "keys")
    )
    try:
        length = len(results) if is_sequence else None  # type: ignore[arg-type]
    except TypeError:  # An array without axes has no length.
        length = None
    if length is None:
        raise BatchError(f"{label} returned {type(results).__name__}; {expected}, in their order")
    if length != size:
        raise BatchError(
            f"{label} returned {length} results for a batch of {size}; {expected}, in their order"
        )
    return results  # type: ignore[return-value]  # it has a length and is indexed


def sendable(error: BaseException, label: str) -> BaseException:
    """Return what a future or an async iterator may raise in place of ``error``."""
    if isinstance(error, StopIteration | StopAsyncIteration):
        # Both would end the awaiting coroutine or loop silently.
        wrapped = BatchError(
            f"{label} raised or returned {type(error).__name__}, which ends a stream; only an "
            f"async generator may say so"
        )
        wrapped.__cause__ = error
        return wrapped
    if not isinstance(error, Exception | asyncio.CancelledError):
        # Raised in the awaiting code, an exit would end its loop and all other calls in it.
        wrapped = BatchError(f"{label} raised or returned {type(error).__name__}")
        wrapped.__cause__ = error
        return wrapped
    return error


class Failing(Protocol):
    """One caller who waits."""

    def fail(self, error: BaseException) -> None:
        """Answer with an exception, unless it was answered."""


def fail_each(calls: Iterable[Failing], error: BaseException, label: str) -> None:
    """Fail all calls of a batch, each with an exception of its own."""
    own = Separate()
    for call in calls:
        call.fail(sendable(own(error), label))


def fail_all(calls: Iterable[Failing], error: BaseException, label: str) -> bool:
    """Fail all calls of a batch that ended with an exit instead of results.

    Returns:
        Whether that settles it: an exit that a model's code raises is a failure of its batch, and
        not the end of the process and of all other calls in it.
    """
    end_if_forked(error)
    fail_each(calls, error, label)
    if not isinstance(error, EXITS) or is_ctrl_c(error):
        return False
    name = type(error).__name__
    _LOGGER.error(
        "%s raised %s, which fails its batch only", label, name, exc_info=exc_info_of(error)
    )
    return True
