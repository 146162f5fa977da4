"""Runs one plain call: reads the arguments, calls the method, makes the answer.

Each factory binds what the calls of a method share into one closure, which is the handler of the
method. Exceptions of user code pass through it; ``status_of_plain`` turns them into statuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from pyserve.aio import Status
from pyserve.aio.internal import LATE_DETAILS, Messages, is_late
from pyserve.api.handles.failures import FAILURE_KEY, encode_failure
from pyserve.api.handles.framing import BATCH_END
from pyserve.api.handles.stream import DeploymentResponseGenerator
from pyserve.batching.streams import BatchStream
from pyserve.errors import Abort, KindError, ModelNotFound, PyserveError
from pyserve.observe.failures import exc_info_of, failure_logger, text_of
from pyserve.replica import iterators
from pyserve.replica.plain.exchange import CallContext, Exchange
from pyserve.replica.plain.methods import Kind, PlainMethod
from pyserve.replica.refusals import CallFailure
from pyserve.stepping.decorator import begin

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Message
    from pyserve.replica.plain.exchange import Door

# What runs a call: (message, context) -> a payload, a coroutine of one, or an iterator of them.
Behavior = Callable[[bytes, Any], Any]


def behavior_of(method: PlainMethod, exchange: Exchange) -> Behavior:
    """Return the handler of a method."""
    make = {
        Kind.ASYNC: _async,
        Kind.SYNC: _sync,
        Kind.ASYNC_GENERATOR: _async_generator,
        Kind.GENERATOR: _generator,
        Kind.BATCHED: _batched,
        Kind.BATCHED_GENERATOR: _batched_generator,
        Kind.STEPPED: _stepped,
    }[method.kind]
    return make(method, exchange)


def _async(method: PlainMethod, exchange: Exchange) -> Behavior:
    function, read, takes_context = method.function, exchange.read, method.takes_context

    async def answer(message: bytes, context: CallContext) -> Message | Messages:
        door, args, kwargs = read(message, context)
        if door.references:
            await exchange.resolve(door, args, kwargs)
        if takes_context:
            args.append(context)
        result = await function(*args, **kwargs)
        if door.streams or type(result) in GENERATORS:
            context.plain = False
            return streamed(exchange.label, door, result)
        return door.encode(result)

    return answer


def _sync(method: PlainMethod, exchange: Exchange) -> Behavior:
    function, read, takes_context = method.function, exchange.read, method.takes_context

    def answer(message: bytes, context: Any) -> Message | Messages:
        door, args, kwargs = read(message, context)
        if door.references:
            exchange.resolve_blocking(door, args, kwargs, context.time_remaining())
        if takes_context:
            args.append(context)
        result = function(*args, **kwargs)
        if isinstance(result, CoroutineType):
            # A decorator has hidden an `async def` behind a `def`; its loop is the replica's.
            result = asyncio.run_coroutine_threadsafe(result, context.kit.loop).result()
        if door.streams or type(result) in GENERATORS:
            return streamed(exchange.label, door, result)
        return door.encode(result)

    return answer


def _async_generator(method: PlainMethod, exchange: Exchange) -> Behavior:
    function, read, takes_context = method.function, exchange.read, method.takes_context

    async def answer(message: bytes, context: CallContext) -> AsyncIterator[Message]:
        door, args, kwargs = read(message, context)
        if door.references:
            await exchange.resolve(door, args, kwargs)
        if takes_context:
            args.append(context)
        items = function(*args, **kwargs)
        try:
            async for item in items:
                yield door.encode(item)
        finally:
            await items.aclose()

    return answer


def _generator(method: PlainMethod, exchange: Exchange) -> Behavior:
    function, read, takes_context = method.function, exchange.read, method.takes_context

    def answer(message: bytes, context: Any) -> Iterator[Message]:
        door, args, kwargs = read(message, context)
        if door.references:
            exchange.resolve_blocking(door, args, kwargs, context.time_remaining())
        if takes_context:
            args.append(context)
        items = function(*args, **kwargs)
        try:
            for item in items:
                yield door.encode(item)
        finally:
            items.close()

    return answer


def _batched(method: PlainMethod, exchange: Exchange) -> Behavior:
    submit, read, flush = method.function, exchange.read, method.flush
    takes_context = method.takes_context

    async def answer(message: bytes, context: CallContext) -> Message:
        door, args, kwargs = read(message, context)
        if door.references:
            await exchange.resolve(door, args, kwargs)
        if takes_context:
            args.append(context)
        result = submit(*args, **kwargs)
        if ends_batch(context):
            flush()
        return door.encode(await result)

    return answer


def _batched_generator(method: PlainMethod, exchange: Exchange) -> Behavior:
    submit, read, flush = method.function, exchange.read, method.flush
    takes_context = method.takes_context

    async def answer(message: bytes, context: CallContext) -> AsyncIterator[Message]:
        door, args, kwargs = read(message, context)
        if door.references:
            await exchange.resolve(door, args, kwargs)
        if takes_context:
            args.append(context)
        items = submit(*args, **kwargs)
        if ends_batch(context):
            flush()
        try:
            async for item in items:
                yield door.encode(item)
        finally:
            await iterators.close(items)

    return answer


def _stepped(method: PlainMethod, exchange: Exchange) -> Behavior:
    submit, read = method.function, exchange.read

    async def answer(message: bytes, context: CallContext) -> Message | Messages:
        door, args, kwargs = read(message, context)
        if door.references:
            await exchange.resolve(door, args, kwargs)
        answer = submit(*args, **kwargs)
        try:
            await begin(answer, context, wants_each=bool(door.streams))
            if door.streams:
                context.plain = False
                items, answer = answer, None
                return streamed(exchange.label, door, items)
            return door.encode(await answer)
        finally:
            if answer is not None:
                await answer.aclose()

    return answer


def ends_batch(context: CallContext) -> bool:
    """Say whether the caller has asked that this call's batch leave now."""
    for key, value in context.call.metadata():
        if key == BATCH_END:
            return bool(value != "0")
    return False


# Answers of methods that return a generator instead of yielding themselves.
#
# `def stream(self, n): return self.numbers(n)` is not a generator function, so whether it answers
# with a stream is known only when it has returned.

GENERATORS = frozenset(
    {GeneratorType, AsyncGeneratorType, BatchStream, DeploymentResponseGenerator}
)
"""Types of results that no codec carries, since they are streams."""


def streamed(label: str, door: Door, result: Any) -> Messages:
    """Return what sends the items of a returned iterator as they are made, and closes it.

    Args:
        label: What messages call the method.
        door: How the call is answered.
        result: What the method has returned: an iterator of either kind, if all is well.

    Raises:
        KindError: The call wants one value, or there is nothing to iterate over.
    """
    if door.streams is False:
        raise KindError(
            f"{label} has returned a generator, which answers with a stream; call it with "
            f".options(stream=True)"
        )
    if isinstance(result, AsyncIterator):
        return Messages(_encoded(door, result))
    if isinstance(result, Iterator):
        return Messages(_encoded_on_a_thread(door, result))
    raise KindError(
        f"{label} has returned {type(result).__qualname__}, no generator; leave "
        f".options(stream=True) out, or let it yield, or return a generator"
    )


async def _encoded(door: Door, items: AsyncIterator[Any]) -> AsyncIterator[Message]:
    try:
        async for item in items:
            yield door.encode(item)
    finally:
        await iterators.close(items)


def _encoded_on_a_thread(door: Door, items: Iterator[Any]) -> Iterator[Message]:
    try:
        for item in items:
            yield door.encode(item)
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


# Turns the exception of a plain call into the status of its end.
#
# A handle gets the exception itself, as plain data in a trailer. Other callers get a status and a
# text that reveals nothing about the service's internals, unless the mesh runs in development mode.

_LOGGER = failure_logger(__name__)
_NEUTRAL_DETAILS = "The deployment raised an exception; its log has the traceback."


def status_of_plain(error: BaseException, context: Any, *, development: bool) -> Status:
    """Return the status of a plain call whose handler raised; log unexpected exceptions.

    Args:
        error: What it raised.
        context: The call's ``ServicerContext``.
        development: Whether texts of exceptions may reach callers that are no handles.
    """
    framed = context.call.framed
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    if framed:
        trailers = ((FAILURE_KEY, encode_failure(error)),)
    if isinstance(error, Abort):
        return Status(error.code, error.details, (*error.trailing_metadata, *trailers))
    mistaken = isinstance(error, ModelNotFound) or _is_wrong_call(error)
    late = is_late(error, context.time_remaining())
    code = StatusCode.DEADLINE_EXCEEDED if late else _code_of(error)
    if late:
        _LOGGER.debug("%s ran out of time", context.method.path, exc_info=exc_info_of(error))
    elif not mistaken and context.cancel_reason is None:
        path = context.method.path
        _LOGGER.error(
            "unexpected %s in %s", type(error).__name__, path, exc_info=exc_info_of(error)
        )
    if mistaken and not framed:
        wrong = error.code if isinstance(error, ModelNotFound) else StatusCode.INVALID_ARGUMENT
        return Status(wrong, str(error))
    if framed or development:
        return Status(code, f"{type(error).__name__}: {text_of(error)}"[:_DETAILS_MAX], trailers)
    return Status(code, LATE_DETAILS if late else _NEUTRAL_DETAILS)


# A status has to fit into the 8 KiB that most peers allow for headers; arbitrary beyond that.
_DETAILS_MAX = 500


def _code_of(error: BaseException) -> StatusCode:
    # Errors of calls that the method itself has made say whether a retry may help. Our other
    # errors (a codec that cannot carry a result) are not the fault of this call's caller.
    if isinstance(error, CallFailure):
        return error.code
    return StatusCode.INTERNAL


def _is_wrong_call(error: BaseException) -> bool:
    """Say whether the arguments do not fit: Python's TypeError before the method's first line."""
    if isinstance(error, PyserveError):
        return False
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return (
        isinstance(error, TypeError)
        and last is not None
        and last.tb_frame.f_code.co_filename == __file__
    )
