"""``@pyserve.batch``: many concurrent calls of an ``async def`` become one.

Every parameter of the decorated function becomes a list; callers pass single values and get
single results. Each instance of a class has its own batches.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from pyserve.batching.batcher import BatchStats
from pyserve.batching.calls import Parameters, check_parameters, collating
from pyserve.batching.options import BatchOptions, Wait
from pyserve.batching.queue import BatchQueue
from pyserve.batching.runs import Caller
from pyserve.config.parts import BatchingConfig
from pyserve.errors import BatchError
from pyserve.request import Source

if TYPE_CHECKING:
    from google.protobuf.message import Message

    Request = TypeVar("Request", bound=Message)
    Reply = TypeVar("Reply", bound=Message)

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

# The instance's attribute for its bound methods, which so live as long as the instance.
_BOUND = "__pyserve_batched__"
_NO_KEYWORDS: Mapping[str, object] = {}


class _BoundMethods:
    """The bound methods of one instance; a copy or pickle of the instance starts without any."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.methods: dict[Batched[Any], Callable[..., Any]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return _BoundMethods, (None,)


class Batched(Generic[Result]):
    """A batched function, or as a class attribute a batched method.

    Calling it returns a coroutine of one result, which joins a batch when it is awaited, or for
    an async generator function an async iterator, which has joined one. Cancelling that takes
    the item out of its batch, unless the batch runs already; then only this caller stops
    waiting, and the run ends when all have.

    Attributes:
        options: The limits that new queues begin with.
        function: What was decorated.
    """

    def __init__(self, function: Callable[..., Any], options: BatchOptions) -> None:
        is_stream = inspect.isasyncgenfunction(function)
        if not is_stream and not inspect.iscoroutinefunction(function):
            raise BatchError(
                f"@pyserve.batch on {_where(function)}: it is no coroutine function; write "
                f"`async def` that takes lists and returns a list"
            )
        if is_stream and options.isolate_failures:
            raise BatchError(
                f"@pyserve.batch on {_where(function)}: isolate_failures cannot run a generator "
                f"again whose results are with the callers already; leave it out, and yield "
                f"exceptions in place of results"
            )
        check_parameters(function, _where(function))
        functools.update_wrapper(self, function)
        self.options = options
        self.function = function
        self._name = function.__name__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Batched[Result]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> BatchedMethod[Result]: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        try:
            kept: _BoundMethods = instance.__dict__[_BOUND]
            if kept.owner is instance:
                return kept.methods[self]
        except (AttributeError, KeyError):
            pass  # It is the first access.
        return self.bind(instance)

    def bind(self, instance: object) -> Callable[..., Any]:
        """Return the method of one instance, always the same.

        Raises:
            BatchError: The instance has no ``__dict__`` to keep its batches in.
        """
        try:
            attributes = instance.__dict__
        except AttributeError:
            raise BatchError(
                f"{type(instance).__qualname__} has __slots__, and its instances nowhere to keep "
                f"the batches of {self._name}; add '__dict__' to them"
            ) from None
        kept = attributes.get(_BOUND)
        if kept is None or kept.owner is not instance:
            kept = attributes[_BOUND] = _BoundMethods(instance)
        bound: Callable[..., Any] | None = kept.methods.get(self)
        if bound is None:
            method = self.function.__get__(instance, type(instance))
            bound = kept.methods[self] = _callable(Submit(method, self.options))
        return bound

    def __getstate__(self) -> dict[str, object]:
        # Batches belong to a loop of this process: a copy begins with none.
        return {name: value for name, value in vars(self).items() if name != "_as_function"}

    def __call__(self, *arguments: object, **keywords: object) -> Coroutine[Any, Any, Result]:
        """Run the function on a batch that holds these arguments and return their result.

        For an async generator function it returns an async iterator.
        """
        made: Coroutine[Any, Any, Result] = self._as_function(*arguments, **keywords)
        return made

    def __pyserve_submit__(self, *arguments: object, **keywords: object) -> Any:
        """Queue one call and return the future, or for a generator the iterator, of results."""
        return self._as_function.__pyserve_submit__(*arguments, **keywords)

    @functools.cached_property
    def _as_function(self) -> Any:
        # A function that is not a method has its own batches.
        return _callable(Submit(self.function, self.options))

    def __getattr__(self, name: str) -> Any:
        # A function that is not a method has the setters and so on of a bound method too.
        if name in _PUBLIC:
            return getattr(self._as_function, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class BatchedMethod(Protocol[Result_co]):
    """A batched method of one instance; see ``batch``, and ``Submit`` for the setters."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Coroutine[Any, Any, Result_co]:
        """Return a coroutine of one result, which joins a batch when it is awaited."""

    def set_max_batch_size(self, max_batch_size: int) -> None: ...
    def set_batch_wait_timeout_s(self, batch_wait_timeout_s: Wait) -> None: ...
    def set_max_concurrent_batches(self, max_concurrent_batches: int) -> None: ...
    def flush(self) -> None: ...
    async def drain(self) -> None: ...
    def stats(self) -> BatchStats | None: ...


class Submit:
    """Puts calls into the queue of the running loop; the next loop gets a new queue.

    The setters may be called from any thread, and also apply to calls that already wait.

    Args:
        function: Bound already, if it is a method.
        options: The limits to begin with.
    """

    def __init__(self, function: Callable[..., Any], options: BatchOptions) -> None:
        self.function = function
        self.options = options
        self.label: str = getattr(function, "__qualname__", type(function).__qualname__)
        self._parameters = Parameters(function, self.label)
        # This many positional arguments form a row unchanged; -1 where some go by keyword.
        self._direct_count = -1 if self._parameters.keywords else self._parameters.count or -1
        self._columns_function = self._parameters.adapted(function)
        self._queue: BatchQueue | None = None

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        """Queue one call of the running loop and return the future of its result.

        For an async generator function it is the iterator of its results, to be closed with
        ``aclose`` by who leaves early.

        Raises:
            TypeError: The call does not fit the function's signature.
            BatchError: Calls of another loop still wait or run.
            Exception: What ``batch_size_fn`` raised.
        """
        queue = self._running_queue()
        row = self._row(arguments, keywords)
        return queue.open(row) if queue.is_stream else queue.submit(row)

    def submit_for(
        self, caller: Caller, source: Source | None, arguments: tuple[object, ...]
    ) -> None:
        """Queue one call of the running loop whose result goes to ``caller``.

        Not for generator functions. Otherwise it does the same as ``__call__``.

        Args:
            caller: Cancelling it takes the call out of its batch.
            source: Of the caller's request.
            arguments: By position.
        """
        self._running_queue().submit_for(caller, source, self._row(arguments, _NO_KEYWORDS))

    def _row(
        self, arguments: tuple[object, ...], keywords: Mapping[str, object]
    ) -> tuple[object, ...]:
        if keywords or len(arguments) != self._direct_count:
            return self._parameters.row(arguments, keywords)
        return arguments

    def _running_queue(self) -> BatchQueue:
        queue = self._queue
        loop = asyncio.get_running_loop()
        if queue is None or queue.loop is not loop:
            if queue is not None and queue.is_busy:
                raise BatchError(
                    f"{self.label} is used by two event loops at once; calls still wait or run on "
                    f"the other: call it from one, or await its drain() there before you change"
                )
            queue = self._queue = BatchQueue(
                self._columns_function, label=self.label, options=self.options, loop=loop
            )
        return queue

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the most items of a batch, at least 1.

        Raises:
            OptionError: It is out of range, as for the other setters.
        """
        self._configure(max_batch_size=max_batch_size)

    def set_batch_wait_timeout_s(self, batch_wait_timeout_s: Wait) -> None:
        """Set the longest wait for company in seconds, or ``"auto"``."""
        self._configure(batch_wait_timeout_s=batch_wait_timeout_s)

    def set_max_concurrent_batches(self, max_concurrent_batches: int) -> None:
        """Set how many batches may run at once; those that run now end in any case."""
        self._configure(max_concurrent_batches=max_concurrent_batches)

    def flush(self) -> None:
        """Let the calls that wait now leave without waiting for more."""
        self._on_loop(lambda queue: queue.flush())

    async def drain(self) -> None:
        """From now on let every call leave without a wait; return once none waits or runs.

        Call it in the loop of the batches. Cancelling it does not take anything back.
        """
        if self._queue is not None:
            await self._queue.drain()

    def stats(self) -> BatchStats | None:
        """Return what has happened so far, ``None`` before the first call."""
        return None if self._queue is None else self._queue.stats()

    def _configure(self, **changes: object) -> None:
        self.options = options = self.options.updated(**changes)
        self._on_loop(lambda queue: queue.configure(options))

    def _on_loop(self, act: Callable[[BatchQueue], None]) -> None:
        queue = self._queue
        if queue is None or queue.loop.is_closed():
            return
        try:
            is_here = asyncio.get_running_loop() is queue.loop
        except RuntimeError:
            is_here = False
        if is_here:
            act(queue)
        else:
            queue.loop.call_soon_threadsafe(act, queue)


_PUBLIC = (
    "set_max_batch_size",
    "set_batch_wait_timeout_s",
    "set_max_concurrent_batches",
    "flush",
    "drain",
    "stats",
)


def _callable(submit: Submit) -> Callable[..., Any]:
    """Return what looks like the method, with what can be set as attributes."""
    function = submit.function
    call: Any
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def call_stream(*arguments: object, **keywords: object) -> Any:
            try:
                asyncio.get_running_loop()
            except RuntimeError:  # A thread, from which only a loop can read it.
                return _submitted_later(submit, arguments, keywords)
            return submit(*arguments, **keywords)

        call = call_stream
    else:

        @functools.wraps(function)
        async def call_once(*arguments: object, **keywords: object) -> Any:
            return await submit(*arguments, **keywords)

        call = call_once
    # The servicer adapter awaits the future without this coroutine in between.
    call.__pyserve_submit__ = submit
    for name in _PUBLIC:
        setattr(call, name, getattr(submit, name))
    return call  # type: ignore[no-any-return]  # both are callables


async def _submitted_later(
    submit: Submit, arguments: tuple[object, ...], keywords: dict[str, object]
) -> AsyncIterator[Any]:
    stream = submit(*arguments, **keywords)
    try:
        async for result in stream:
            yield result
    finally:
        await stream.aclose()


def submits_of(instance: object) -> Iterator[Submit]:
    """Yield the batches of each method of an instance that has been bound so far."""
    kept: _BoundMethods | None = getattr(instance, "__dict__", {}).get(_BOUND)
    if kept is not None and kept.owner is instance:
        for bound in kept.methods.values():
            yield bound.__pyserve_submit__  # type: ignore[attr-defined]  # see _callable


def flush(instance: object) -> None:
    """Let the calls that wait in any batched method of an instance leave now."""
    for submit in submits_of(instance):
        submit.flush()


async def drain(instance: object) -> None:
    """Let every call of the batched methods of an instance leave without a wait from now on.

    Returns once none waits or runs.
    """
    await asyncio.gather(*(submit.drain() for submit in submits_of(instance)))


def make_batched(
    function: Callable[..., Any],
    options: BatchOptions | BatchingConfig,
    *,
    threads: Executor | None = None,
) -> Batched[Any]:
    """Batch a method that has no decorator, for ``batching_config``.

    Every parameter becomes a ``BatchRequest``, a list that also has ``json()``. The method
    returns a list, tuple or array as a decorated one does, or a dict of columns: of its values
    those with the batch's length are split, the others copied. A plain ``def`` runs in a thread.

    Args:
        function: ``async def``, an async generator, or ``def``; not bound.
        options: The limits, or the deployment's ``batching_config``.
        threads: Where a ``def`` runs; the loop's default pool if not given.

    Raises:
        BatchError: It is a generator that is not async.
    """
    if isinstance(options, BatchingConfig):
        options = BatchOptions.of_config(options)
    return Batched(collating(function, threads), options)


class _Decorator(Protocol):
    """What ``@batch(...)`` returns. A checker reads a batched generator's results as ``Any``."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[[Any, list[Request]], Awaitable[Sequence[Reply]]], /
    ) -> Callable[..., Coroutine[Any, Any, Reply]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[[Any, list[Request], Any], Awaitable[Sequence[Reply]]], /
    ) -> Callable[..., Coroutine[Any, Any, Reply]]: ...
    @overload
    def __call__(
        self, function: Callable[..., Awaitable[Sequence[Result]]], /
    ) -> Batched[Result]: ...
    @overload
    def __call__(self, function: Callable[..., AsyncIterator[Sequence[Any]]], /) -> Any: ...


# A method of a generated servicer overrides one, so it is a function for checkers; by its messages
# they know it.
@overload
def batch(  # type: ignore[overload-overlap]
    function: Callable[[Any, list[Request]], Awaitable[Sequence[Reply]]], /
) -> Callable[..., Coroutine[Any, Any, Reply]]: ...
@overload
def batch(  # type: ignore[overload-overlap]
    function: Callable[[Any, list[Request], Any], Awaitable[Sequence[Reply]]], /
) -> Callable[..., Coroutine[Any, Any, Reply]]: ...
@overload
def batch(function: Callable[..., Awaitable[Sequence[Result]]], /) -> Batched[Result]: ...
@overload
def batch(function: Callable[..., AsyncIterator[Sequence[Any]]], /) -> Any: ...
@overload
def batch(
    *,
    max_batch_size: int = 10,
    batch_wait_timeout_s: Wait = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], float] | None = None,
    isolate_failures: bool = False,
) -> _Decorator: ...
def batch(
    function: Callable[..., Any] | None = None,
    /,
    *,
    max_batch_size: int = 10,
    batch_wait_timeout_s: Wait = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], float] | None = None,
    isolate_failures: bool = False,
) -> Any:
    """Collect concurrent calls of an ``async def`` function or method into batches.

    Every parameter becomes a list of the batch's length, those with defaults included, and the
    function returns a list, tuple or array whose first axis has that length. An exception
    instance in it (``pyserve.Abort`` included) fails that one caller; an exception raised fails
    every caller of the batch. An async generator function yields one such list a step, and each
    caller gets an async iterator; ``StopAsyncIteration`` as an item ends that caller's.
    A servicer's method takes the list of requests and may leave the contexts out.

    A batch leaves when an executor is free and it is full or its oldest item has waited
    ``batch_wait_timeout_s``; while the executors are busy it stays open for newcomers. It holds
    requests of one model only, and nobody who has gone or whose deadline has passed. It runs
    with the request of the batch as the current one: its model id, its latest deadline.

    The bound method also has ``set_max_batch_size``, ``set_batch_wait_timeout_s``,
    ``set_max_concurrent_batches``, ``flush``, ``drain`` and ``stats``.

    Args:
        function: The function, when the decorator is written without parentheses.
        max_batch_size: Most items of a batch, or with ``batch_size_fn`` the largest sum of
            their sizes; at least 1.
        batch_wait_timeout_s: Longest wait for company, in seconds, at least 0; ``"auto"``
            learns from arrivals and step times when a wait pays, keeps the callers' deadlines,
            and answers RESOURCE_EXHAUSTED at once to a call that cannot keep its own.
        max_concurrent_batches: Batches of one instance that may run at once.
        batch_size_fn: Called once for each item, with a list that holds it alone (the argument,
            or the tuple of several); returns its size. A larger item than ``max_batch_size``
            fails alone.
        isolate_failures: Run a batch that raised again in halves until only the bad items
            fail. The function must be idempotent.

    Raises:
        OptionError: A limit is out of range.
        BatchError: The function is not an ``async def``.
    """
    options = BatchOptions(
        max_batch_size=max_batch_size,
        batch_wait_timeout_s=batch_wait_timeout_s,
        max_concurrent_batches=max_concurrent_batches,
        batch_size_fn=batch_size_fn,
        isolate_failures=isolate_failures,
    )

    def decorate(target: Callable[..., Any]) -> Batched[Any]:
        return Batched(target, options)

    return decorate if function is None else decorate(function)


def _where(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", repr(function))
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
