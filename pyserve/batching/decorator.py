"""``@pyserve.batch``: many concurrent calls of an ``async def`` become one.

Every parameter of the decorated function becomes a list; callers pass single values and get
single results. Each instance of a class has its own batches.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pyserve.batching.batcher import BatchOptions
from pyserve.batching.queue import BatchQueue
from pyserve.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

Result = TypeVar("Result")


class Batched(Generic[Result]):
    """A batched function, or as a class attribute a batched method.

    Calling it returns a coroutine of one result. Cancelling that coroutine takes the item out
    of its batch, unless the batch runs already; then only this caller stops waiting.
    """

    def __init__(
        self, function: Callable[..., Awaitable[Sequence[Result]]], options: BatchOptions
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            kind = "an async generator" if inspect.isasyncgenfunction(function) else "no coroutine"
            code = inspect.unwrap(function).__code__
            raise BatchError(
                f"@pyserve.batch on {function.__qualname__} ({code.co_filename}:"
                f"{code.co_firstlineno}): it is {kind} function; write `async def` that takes "
                f"lists and returns a list"
            )
        functools.update_wrapper(self, function)
        self.options = options
        self.function = function
        self._name = function.__name__
        self._submit: Submit[Result] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Batched[Result]: ...
    @overload
    def __get__(
        self, instance: object, owner: type
    ) -> Callable[..., Coroutine[Any, Any, Result]]: ...
    def __get__(
        self, instance: object | None, owner: type
    ) -> Batched[Result] | Callable[..., Coroutine[Any, Any, Result]]:
        if instance is None:
            return self
        bound = _bind(self.function.__get__(instance, owner), self)
        # The instance attribute shadows this descriptor: the next access is a plain look-up,
        # and the batches live exactly as long as the instance does.
        instance.__dict__[self._name] = bound
        return bound

    async def __call__(self, *arguments: object) -> Result:
        """Run the function on a batch that holds these arguments and return their result."""
        if self._submit is None:
            self._submit = Submit(self.function, self)
        return await self._submit(*arguments)


class Submit(Generic[Result]):
    """Puts calls into the queue of the running loop; a new loop gets a new queue."""

    def __init__(
        self, function: Callable[..., Awaitable[Sequence[Result]]], batched: Batched[Result]
    ) -> None:
        self._function = function
        self._batched = batched
        parameters = inspect.signature(function).parameters
        self._argument_count = len(parameters)
        self._queue: BatchQueue[Result] | None = None

    def __call__(self, *arguments: object) -> asyncio.Future[Result]:
        """Queue one call of the running loop and return the future of its result."""
        if len(arguments) != self._argument_count:
            raise TypeError(
                f"{self._batched.function.__qualname__}() takes {self._argument_count} positional "
                f"arguments for each item of a batch but {len(arguments)} were given"
            )
        queue = self._queue
        loop = asyncio.get_running_loop()
        if queue is None or queue.loop is not loop:
            queue = self._queue = BatchQueue(
                self._function,
                label=self._batched.function.__qualname__,
                options=self._batched.options,
                loop=loop,
            )
        return queue.submit(*arguments)


def _bind(
    function: Callable[..., Awaitable[Sequence[Result]]], batched: Batched[Result]
) -> Callable[..., Coroutine[Any, Any, Result]]:
    submit = Submit(function, batched)

    @functools.wraps(function)
    async def call(*arguments: object) -> Result:
        return await submit(*arguments)

    # The servicer adapter awaits the future without this coroutine in between.
    call.__pyserve_submit__ = submit  # type: ignore[attr-defined]  # functions take attributes
    return call


@overload
def batch(function: Callable[..., Awaitable[Sequence[Result]]], /) -> Batched[Result]: ...
@overload
def batch(
    *,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float = 0.01,
    max_concurrent_batches: int = 1,
) -> Callable[[Callable[..., Awaitable[Sequence[Result]]]], Batched[Result]]: ...
def batch(
    function: Callable[..., Awaitable[Sequence[Result]]] | None = None,
    /,
    *,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float = 0.01,
    max_concurrent_batches: int = 1,
) -> Batched[Result] | Callable[[Callable[..., Awaitable[Sequence[Result]]]], Batched[Result]]:
    """Collect concurrent calls of an ``async def`` function or method into batches.

    The function's parameters become lists of equal length, and it returns a list, tuple or
    array whose first axis has that length. An exception instance in it (``pyserve.Abort``
    included) fails that one caller; an exception raised fails every caller of the batch.
    A servicer's method takes the list of requests and may leave the contexts out.

    A batch leaves when an executor is free and it is full or its oldest item has waited
    ``batch_wait_timeout_s``; while the executors are busy it stays open for newcomers.

    Args:
        function: The function, when the decorator is written without parentheses.
        max_batch_size: Most items of a batch, at least 1.
        batch_wait_timeout_s: Longest wait for company, in seconds, at least 0.
        max_concurrent_batches: Batches of one instance that may run at once.

    Raises:
        OptionError: A limit is out of range.
        BatchError: The function is not an ``async def``.
    """
    options = BatchOptions(
        max_batch_size=max_batch_size,
        batch_wait_timeout_s=batch_wait_timeout_s,
        max_concurrent_batches=max_concurrent_batches,
    )

    def decorate(target: Callable[..., Awaitable[Sequence[Result]]]) -> Batched[Result]:
        return Batched(target, options)

    return decorate if function is None else decorate(function)
