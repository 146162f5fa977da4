"""How calls become a batch: rows of arguments, and columns for methods written for one request.

``batching_config`` gives a method lists without a decorator. A method that only knows
``data = await request.json()`` and returns a dict keeps working: the list has a ``json()`` that
makes columns of the requests' objects, and a dict result is cut into one for each request.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from grpc import StatusCode

from pyserve.batching.runs import checked
from pyserve.errors import BatchError
from pyserve.signatures import read_signature

_KINDS = inspect.Parameter


class Parameters:
    """The parameters of a batched function, ``self`` left out.

    Args:
        function: Bound, or a plain function.
        label: What messages call it.

    """

    __slots__ = ("_signature", "count", "keywords", "label")

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        self.label = label
        self._signature = read_signature(function)
        parameters = self._signature.parameters.values()
        self.count = len(parameters)
        # Names of the columns that go by keyword; they are the last ones.
        self.keywords = tuple(p.name for p in parameters if p.kind is _KINDS.KEYWORD_ONLY)

    def row(
        self, arguments: tuple[object, ...], keywords: Mapping[str, object]
    ) -> tuple[object, ...]:
        """Return one value for each parameter, defaults included.

        Raises:
            TypeError: The call does not fit the signature.
            BatchError: The function has no parameter.
        """
        if not self.count:
            raise BatchError(
                f"{self.label}: it takes nothing, so there is nothing to make lists of; give it a "
                f"parameter"
            )
        try:
            bound = self._signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(
                f"{self.label}(): {error}; each call passes single values for {self._signature}"
            ) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def adapted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` taking all its columns by position."""
        if not self.keywords:
            return function
        names, positional = self.keywords, self.count - len(self.keywords)
        if inspect.isasyncgenfunction(function):

            async def generate(*columns: object) -> Any:
                named = dict(zip(names, columns[positional:], strict=True))
                generator = function(*columns[:positional], **named)
                try:
                    async for results in generator:
                        yield results
                finally:
                    await generator.aclose()

            return generate

        async def call(*columns: object) -> Any:
            named = dict(zip(names, columns[positional:], strict=True))
            return await function(*columns[:positional], **named)

        return call


def check_parameters(function: Callable[..., Any], where: str) -> None:
    """Refuse what has no fixed number of columns; without any, calls are refused.

    Raises:
        BatchError: The function takes ``*args`` or ``**kwargs``.
    """
    parameters = read_signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in {_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD}:
            raise BatchError(
                f"@pyserve.batch on {where}: {str(parameter)!r} is no fixed number of lists; "
                f"name every parameter"
            )


class BatchRequest(list[Any]):
    """The requests of one batch: a list of them, and one request made of all.

    Attributes:
        failures: By index, what ``json()`` found wrong with single requests. Those are answered
            with it, and left out of the columns.
    """

    def __init__(self, requests: Sequence[Any]) -> None:
        super().__init__(requests)
        self.failures: dict[int, Exception] = {}

    async def json(self) -> Any:
        """Return the bodies of all requests as columns.

        Each request's own ``json()`` is called, be it ``def`` or ``async def``; a request
        without one counts as its own body.

        Returns:
            A dict of lists where every body is a dict, with the keys of the first; otherwise
            the list of bodies.

        Raises:
            Exception: No request had a body that could be read; the first one's error.
        """
        bodies: dict[int, Any] = {}
        for index, request in enumerate(self):
            if index in self.failures:
                continue
            try:
                bodies[index] = await _body_of(request)
            except Exception as error:  # One caller's mistake, not the batch's.
                self.failures[index] = error
        if not bodies:
            raise next(iter(self.failures.values()))
        if not all(isinstance(body, dict) for body in bodies.values()):
            return list(bodies.values())
        keys = next(iter(bodies.values())).keys()
        for index in [i for i, body in bodies.items() if body.keys() != keys]:
            self.failures[index] = _other_keys(bodies.pop(index).keys(), keys)
        return {key: [body[key] for body in bodies.values()] for key in keys}


def split_columns(result: Mapping[Any, Any], count: int) -> list[dict[Any, Any]]:
    """Cut a dict of columns into ``count`` dicts.

    A list, tuple or array of length ``count`` is a column, one value for each; everything else
    is copied to all.
    """
    columns = {key: value for key, value in result.items() if _is_column(value, count)}
    return [
        {key: value[index] if key in columns else value for key, value in result.items()}
        for index in range(count)
    ]


def collating(function: Callable[..., Any], threads: Executor | None) -> Callable[..., Any]:
    """Return an ``async def`` or async generator function that takes and returns lists.

    Raises:
        BatchError: ``function`` is a generator that is not async.
    """
    label = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function):
        raise BatchError(
            f"batching_config on {label}: it is a plain generator, and batches need one that "
            f"can wait; write `async def` with `yield`"
        )
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def generate(*arguments: Any) -> Any:
            made, batch = _collated(arguments)
            generator = function(*made)
            try:
                async for step in generator:
                    yield _spread(step, batch, label)
            finally:
                await generator.aclose()

        return generate
    is_async = inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    async def call(*arguments: Any) -> Any:
        made, batch = _collated(arguments)
        try:
            if is_async:
                result = await function(*made)
            else:
                run = contextvars.copy_context().run
                loop = asyncio.get_running_loop()
                result = await loop.run_in_executor(threads, run, function, *made)
        except Exception:
            if len(batch.failures) < len(batch):
                raise
            return [batch.failures[index] for index in range(len(batch))]
        return _spread(result, batch, label)

    return call


def _collated(arguments: tuple[Any, ...]) -> tuple[list[Any], BatchRequest]:
    """Make each column a batch request. The argument that is not a column is the instance."""
    made = [BatchRequest(each) if type(each) is list else each for each in arguments]
    batch = next(each for each in made if isinstance(each, BatchRequest))
    for other in made:
        if isinstance(other, BatchRequest):
            other.failures = batch.failures
    return made, batch


def _spread(result: Any, batch: BatchRequest, label: str) -> Any:
    """Return one result for each request, failures of single ones in their places."""
    good = [index for index in range(len(batch)) if index not in batch.failures]
    if isinstance(result, Mapping):
        result = split_columns(result, len(good))
    if not batch.failures:
        return result
    spread: list[Any] = [batch.failures.get(index) for index in range(len(batch))]
    for index, each in zip(good, checked(result, len(good), label), strict=True):
        spread[index] = each
    return spread


async def _body_of(request: Any) -> Any:
    read = getattr(request, "json", None)
    body = read() if callable(read) else request
    return await body if inspect.isawaitable(body) else body


def _is_column(value: object, count: int) -> bool:
    if not hasattr(value, "__getitem__") or hasattr(value, "keys"):
        return False
    if isinstance(value, str | bytes | bytearray | memoryview):
        return False
    try:
        return len(value) == count  # type: ignore[arg-type]  # asked just now
    except TypeError:  # An array without axes has no length.
        return False


def _other_keys(keys: Any, expected: Any) -> BatchError:
    error = BatchError(
        f"this request has the keys {sorted(map(str, keys))}, but the batch it came into has "
        f"{sorted(map(str, expected))}; send the same keys with every request"
    )
    error.code = StatusCode.INVALID_ARGUMENT
    return error
