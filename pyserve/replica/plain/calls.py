"""Runs one plain call: reads the arguments, calls the method, makes the answer.

Each factory binds what the calls of a method share into one closure, which is the handler of the
method. Exceptions of user code pass through it; ``failures`` turns them into statuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from pyserve.api.handles.framing import BATCH_END
from pyserve.replica import iterators
from pyserve.replica.plain.exchange import CallContext, Exchange
from pyserve.replica.plain.methods import Kind, PlainMethod
from pyserve.replica.plain.returned import GENERATORS, streamed

if TYPE_CHECKING:
    from pyserve.aio._handlers import Messages
    from pyserve.api.handles.calls import Message

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


def ends_batch(context: CallContext) -> bool:
    """Say whether the caller has asked that this call's batch leave now."""
    for key, value in context.call.metadata():
        if key == BATCH_END:
            return bool(value != "0")
    return False
