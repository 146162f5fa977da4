"""Turns the methods of a constructed instance into the handlers that a server runs.

A method with the signature ``(self, request, context)`` is registered as it is, so it costs
nothing here; each of the other shapes gets the one thin function that it needs.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import grpc

from pyserve.aio._deferred import DeferredUnary
from pyserve.aio._handlers import Messages
from pyserve.api.method import options_of
from pyserve.batching import Batched
from pyserve.batching.decorator import Submit
from pyserve.errors import Abort
from pyserve.replica import by_name
from pyserve.replica.checks import Method
from pyserve.replica.servicers import Handlers, Service
from pyserve.request import Source

# The user's callables: what they take and return is checked by kind and count, not by type.
Behavior = Callable[[Any, Any], Any]


def register(
    instance: object,
    services: tuple[Service, ...],
    methods: Mapping[str, Method],
    add: Callable[[str, Handlers], None],
) -> None:
    """Register every RPC of the services: the user's methods, and refusals for the others.

    Args:
        instance: The constructed object.
        services: What its class implements.
        methods: The implemented methods by path.
        add: Takes a service's name and its handlers.
    """
    for service in services:
        handlers = {
            name: _with_behavior(
                handler, _behavior(instance, methods.get(f"/{service.name}/{name}"), name)
            )
            for name, handler in service.handlers.items()
        }
        add(service.name, handlers)


def weights(methods: Mapping[str, Method]) -> dict[str, int]:
    """Return the weight at the admission gate of each method that does not count 1."""
    found = {path: options_of(_function(method)).weight for path, method in methods.items()}
    return {path: weight for path, weight in found.items() if weight != 1}


def _behavior(instance: object, method: Method | None, name: str) -> Behavior:
    if method is None:
        return _unimplemented
    if isinstance(method.function, Batched) and not method.mistake:
        bound: Any = method.function.bind(instance)
        adapted = _without_batch_layer(bound, takes_context=method.takes_context)
    elif method.by_name:
        adapted = by_name.behavior(getattr(instance, name), method)
    elif method.takes_context:
        adapted = getattr(instance, name)
    else:
        adapted = _without_context(getattr(instance, name))
    timeout_s = options_of(_function(method)).timeout_s
    return adapted if timeout_s is None else with_timeout(adapted, timeout_s)


def _function(method: Method) -> object:
    function = method.function
    if isinstance(function, staticmethod | classmethod):
        return function.__func__
    return function.function if isinstance(function, Batched) else function


async def _unimplemented(_request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    # The generated body would raise, and leave a traceback in the log for every call.
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not implemented!")


def _without_batch_layer(bound: Any, *, takes_context: bool) -> Behavior:
    submit: Submit = bound.__pyserve_submit__
    if inspect.isasyncgenfunction(bound.__wrapped__):

        async def stream(request: object, context: object) -> AsyncIterator[object]:
            results = submit(request, context) if takes_context else submit(request)
            try:
                async for message in results:
                    yield message
            finally:
                await results.aclose()

        return stream
    submit_for = submit.submit_for
    if takes_context:

        def queue_with_context(
            request: object, context: object, source: Source | None, reply: Any
        ) -> None:
            submit_for(reply, source, (request, context))

        return DeferredUnary(queue_with_context)

    def queue(request: object, _context: object, source: Source | None, reply: Any) -> None:
        submit_for(reply, source, (request,))

    return DeferredUnary(queue)


def _without_context(bound: Any) -> Behavior:
    if inspect.isasyncgenfunction(bound):
        # An async generator itself, so that closing it closes the user's.
        async def stream(request: object, _context: object) -> AsyncIterator[object]:
            generator = bound(request)
            try:
                async for message in generator:
                    yield message
            finally:
                await generator.aclose()

        return stream
    if inspect.iscoroutinefunction(bound):

        async def unary(request: object, _context: object) -> object:
            return await bound(request)

        return unary

    def plain(request: object, _context: object) -> object:
        return bound(request)

    return plain


def with_timeout(behavior: Behavior, timeout_s: float) -> Behavior:
    """Limit calls that come without a deadline."""
    if inspect.isasyncgenfunction(behavior):

        async def stream(request: object, context: Any) -> AsyncIterator[object]:
            generator = behavior(request, context)
            if context.time_remaining() is None:
                generator = _limited(generator, _deadline_in(timeout_s), timeout_s)
            try:
                async for message in generator:
                    yield message
            finally:
                await generator.aclose()

        return stream

    async def unary(request: object, context: Any) -> object:
        if context.time_remaining() is not None:
            return await behavior(request, context)
        deadline = _deadline_in(timeout_s)
        try:
            async with asyncio.timeout_at(deadline) as limit:
                response = await behavior(request, context)
        except TimeoutError:
            if not limit.expired():  # It is the user's own.
                raise
            raise _expired(timeout_s) from None
        if not isinstance(response, Messages):
            return response
        items = response.items
        if isinstance(items, AsyncIterator):
            return Messages(_limited(items, deadline, timeout_s))
        left_s = deadline - asyncio.get_running_loop().time()
        return Messages(_limited_steps(items, time.monotonic() + left_s, timeout_s))

    return unary


def _deadline_in(timeout_s: float) -> float:
    return asyncio.get_running_loop().time() + timeout_s


async def _limited(generator: Any, deadline: float, timeout_s: float) -> AsyncIterator[Any]:
    """Pass on what a generator yields until ``deadline``, in the loop's time."""
    try:
        while True:
            # The limit must not stand across a yield: its time is the client's.
            async with asyncio.timeout_at(deadline) as limit:
                message = await anext(generator, _END)
            if message is _END:
                break
            yield message
    except TimeoutError:
        if not limit.expired():  # It is the user's own.
            raise
        raise _expired(timeout_s) from None
    finally:
        await generator.aclose()


def _limited_steps(generator: Any, deadline: float, timeout_s: float) -> Iterator[Any]:
    """Do that for a generator on threads, by the clock: none of its steps can be stopped."""
    try:
        for message in generator:
            if time.monotonic() > deadline:
                raise _expired(timeout_s)
            yield message
    finally:
        generator.close()


def _expired(timeout_s: float) -> Abort:
    return Abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"took longer than {timeout_s:g} s")


_END = object()


def _with_behavior(
    handler: grpc.RpcMethodHandler[Any, Any], behavior: Behavior
) -> grpc.RpcMethodHandler[Any, Any]:
    make: Any = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    made: grpc.RpcMethodHandler[Any, Any] = make(
        behavior,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
    return made
