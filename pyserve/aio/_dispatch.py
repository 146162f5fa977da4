"""Finds the handler of a call: compiled methods, generic handlers, interceptors.

Paths that are known at the start get a number and a compiled starter. Decisions that are possible
only per call (interceptors, generic handlers that look at metadata) are made in the call's task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import grpc

from pyserve.aio._context import ServicerContext, SyncServicerContext
from pyserve.aio._handlers import (
    CallKit,
    Method,
    RpcMethodHandler,
    is_async_generator_function,
    is_coroutine_function,
    make_method,
)
from pyserve.aio._metadata import Metadatum, received
from pyserve.aio._outcome import METHOD_NOT_FOUND, fail, release
from pyserve.aio._streams import MessageStream
from pyserve.aio._tasks import (
    AsyncRunner,
    DeferredUnary,
    run_response_stream,
    run_stream_unary,
    run_unary_unary,
    starter_of,
    starter_of_deferred,
)
from pyserve.aio._threads import ThreadedCall
from pyserve.bridge import CallStarter, rust
from pyserve.request import CURRENT


@dataclass(frozen=True)
class HandlerCallDetails(grpc.HandlerCallDetails):
    """The details of a call that interceptors and generic handlers get."""

    method: str
    invocation_metadata: tuple[Metadatum, ...]


Resolve: TypeAlias = "Callable[[HandlerCallDetails], RpcMethodHandler | None]"


def is_async_handler(method: Method) -> bool:
    """Tell whether the handler runs on the loop; others run on the pool."""
    if is_coroutine_function(method.function):
        return True
    return method.response_streaming and is_async_generator_function(method.function)


def runner_of(method: Method, kit: CallKit) -> AsyncRunner:
    """Return the coroutine function for an ``async def`` handler of any kind."""
    if method.response_streaming:
        return run_response_stream(method, kit)
    if method.request_streaming:
        return run_stream_unary(method, kit)
    return run_unary_unary(method, kit)


def compile_method(method: Method, kit: CallKit, threads: CallKit) -> CallStarter:
    """Return what starts the calls of ``method`` when no interceptor has a say."""
    if isinstance(method.function, DeferredUnary):
        return starter_of_deferred(method.function, method, kit)
    if is_async_handler(method):
        return starter_of(runner_of(method, kit), method, kit)

    def start(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        context = SyncServicerContext(call, method, threads)
        kit.receivers[token] = context
        ThreadedCall(context, token, message).submit()

    return start


class Resolver:
    """Looks handlers up by path: registered ones first, then the generic ones in order.

    Args:
        framed: Those of calls that handles make, at paths where others have another one.
    """

    def __init__(self, framed: Mapping[str, RpcMethodHandler]) -> None:
        self.framed = framed
        self.registered: dict[str, RpcMethodHandler] = {}
        self.generic: list[grpc.GenericRpcHandler] = []

    def __call__(self, details: HandlerCallDetails) -> RpcMethodHandler | None:
        """Return the handler for ``details``, ``None`` when no one has it."""
        handler = self.registered.get(details.method)
        if handler is not None:
            return handler
        for generic in self.generic:
            handler = generic.service(details)
            if handler is not None:
                return handler
        return None

    def of_call(self, call: rust.ServerCall) -> Resolve:
        """Return what looks up the handler of ``call``."""
        return self._of_handles if self.framed and call.framed else self

    def _of_handles(self, details: HandlerCallDetails) -> RpcMethodHandler | None:
        return self.framed.get(details.method) or self(details)

    def static_handlers(self) -> dict[str, RpcMethodHandler]:
        """Return what can be compiled before the first call, by path.

        Generated code of before registered methods offers its table only as a generic handler;
        that one is a plain dictionary which looks at nothing but the path.
        """
        found: dict[str, RpcMethodHandler] = {}
        for generic in self.generic:
            table = getattr(generic, "_method_handlers", None)
            if not (
                isinstance(generic, grpc.ServiceRpcHandler)
                and isinstance(table, dict)
                and type(generic).__module__ == "grpc._utilities"
            ):
                # It may claim any path, so the handlers after it are looked up per call.
                break
            for path, handler in table.items():
                found.setdefault(path, handler)
        return found | self.registered


def starter_at(
    method: Method,
    resolver: Resolver,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    kits: tuple[CallKit, CallKit],
) -> CallStarter:
    """Return what starts the calls at a path that was registered."""
    path = method.path
    if interceptors:
        return starter_of_resolved(path, resolver, interceptors, kits)
    of_others = compile_method(method, *kits)
    if path not in resolver.framed:
        return of_others
    of_handles = compile_method(make_method(path, resolver.framed[path]), *kits)

    def start(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        (of_handles if call.framed else of_others)(token, call, message)

    return start


def starter_of_resolved(
    path: str | None,
    resolver: Resolver,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    kits: tuple[CallKit, CallKit],
) -> CallStarter:
    """Return what starts calls whose handler is found per call.

    ``path`` is ``None`` for the calls of all paths that were not registered.
    """
    kit, threads = kits

    async def run(context: ServicerContext, token: int, message: bytes | None) -> None:
        CURRENT.set(context)
        try:
            details = HandlerCallDetails(context.method.path, received(context.call.metadata()))
            resolve = resolver.of_call(context.call)
            if interceptors:
                handler = await _intercept(iter(interceptors), resolve, details)
            else:
                handler = resolve(details)
            # An interceptor may have swallowed the cancellation.
            context.check_running()
            if handler is None:
                context.set_details(METHOD_NOT_FOUND)
                context.queue_status(grpc.StatusCode.UNIMPLEMENTED.value[0])
                rest = None
            else:
                method = make_method(context.method.path, handler)
                message = await _whole_request(context, method, message)
                rest = _hand_over(context, method, token, message)
        except BaseException as error:
            fail(context, error)
            rest = None
        if rest is None:
            if kit.receivers.get(token) is context:
                kit.receivers.pop(token, None)
                context.task = None  # See ServicerContext.
                release(context)
        else:
            await rest

    def _hand_over(
        context: ServicerContext, method: Method, token: int, message: bytes | None
    ) -> Any:
        context.method = method
        if is_async_handler(method):
            return runner_of(method, kit)(context, token, message)
        sync_context = SyncServicerContext(context.call, method, threads)
        sync_context.stream = context.stream
        kit.receivers[token] = sync_context
        ThreadedCall(sync_context, token, message).submit()
        return None

    def start(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        placeholder = unresolved(path if path is not None else call.path)
        context = ServicerContext(call, placeholder, kit)
        if message is None:
            context.stream = MessageStream(call, kit.flush, kit.loop)
        kit.receivers[token] = context
        task = kit.spawn(run(context, token, message))
        if not task.done():  # One that began at once may have ended.
            context.task = task

    return start


async def _whole_request(
    context: ServicerContext, method: Method, message: bytes | None
) -> bytes | None:
    """Return the one message of a unary request that arrived as a stream.

    Only paths that were not registered come so; the native side checks the others itself.
    """
    if message is not None or method.request_streaming:
        return message
    stream = context.stream
    assert isinstance(stream, MessageStream)
    raw = await stream.read_raw()
    extra = None if raw is None else await stream.read_raw()
    if raw is None or extra is not None:
        context.end_aborted(
            grpc.StatusCode.UNIMPLEMENTED,
            f"{method.path} takes exactly one request message, "
            f"{'none' if raw is None else 'more'} came",
            (),
        )
    context.stream = None
    return raw


def _intercept(
    interceptors: Iterator[grpc.aio.ServerInterceptor],
    resolve: Resolve,
    details: HandlerCallDetails,
) -> Awaitable[RpcMethodHandler | None]:
    interceptor = next(interceptors, None)
    if interceptor is None:
        return _resolved(resolve, details)
    continuation = partial(_intercept, interceptors, resolve)
    return interceptor.intercept_service(continuation, details)


async def _resolved(resolve: Resolve, details: HandlerCallDetails) -> RpcMethodHandler | None:
    return resolve(details)


def unresolved(path: str) -> Method:
    """Return a stand-in for the method of a call whose handler is not known yet."""
    return Method(
        path=path,
        request_streaming=False,
        response_streaming=False,
        function=_never,
        deserialize=bytes,
        serialize=bytes,
        response_type=None,
    )


def _never(*_arguments: object) -> None:
    raise AssertionError("a call ran before its handler was found")
