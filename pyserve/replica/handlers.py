"""Turns the methods of a constructed instance into the handlers that a server runs.

A method with the signature ``(self, request, context)`` is registered as it is, so it costs
nothing here; each of the other shapes gets the one thin function that it needs.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor

from pyserve.aio import ServicerContext
from pyserve.aio.internal import DeferredUnary, Messages
from pyserve.api.method import options_of
from pyserve.batching import Batched
from pyserve.batching.decorator import Submit
from pyserve.errors import Abort
from pyserve.observe.failures import describe
from pyserve.replica import iterators
from pyserve.replica.checks import Method, plain_function, where, wrong_kind
from pyserve.replica.servicers import Handlers, Service, service_of_function
from pyserve.request import Source
from pyserve.signatures import read_signature
from pyserve.types import ServiceName

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
        adapted = behavior(getattr(instance, name), method)
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


# RPCs that a class answers by the names of its methods, without the generated base.
#
# Ray Serve finds them so: `grpc_servicer_functions` name the services, every application's ingress
# deployment answers those of their methods that it has, a parameter `grpc_context` gets the
# context, and the trailing metadata have `request_id`.

_CONTEXT = "grpc_context"
_KINDS = inspect.Parameter
_NAMED = {_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD, _KINDS.KEYWORD_ONLY}
_BY_KEYWORD = {_KINDS.POSITIONAL_OR_KEYWORD, _KINDS.KEYWORD_ONLY}
_FIRST = {_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD, _KINDS.VAR_POSITIONAL}


def find_by_name(
    target: type, functions: Sequence[str], besides: Sequence[Service]
) -> tuple[tuple[Service, ...], dict[str, Method], list[str]]:
    """Return the services whose RPCs a class has methods for, and these methods by path.

    What cannot be imported is left out with a line to log: other applications may be meant by
    the list. A method that cannot be called as its RPC has a line too, and its calls fail.

    Args:
        target: The class.
        functions: Import paths of generated ``add_XServicer_to_server``.
        besides: Services that it implements by their bases; they are skipped.

    """
    inherited = {service.name for service in besides}
    found: dict[ServiceName, Service] = {}
    methods: dict[str, Method] = {}
    lines: list[str] = []
    for path in functions:
        try:
            service = service_of_function(path)
        except Exception as error:
            # The list is the mesh's; this application may have nothing to do with it.
            lines.append(
                f"grpc_servicer_functions has {path}, which cannot be used here, so "
                f"{target.__qualname__} does not answer its service: {describe(error)}"
            )
            continue
        if service.name in inherited or service.name in found:
            continue
        for name, descriptor in service.methods.items():
            # Not by getattr_static: every class has the __call__ of its metaclass.
            static = next((vars(each)[name] for each in target.__mro__ if name in vars(each)), None)
            if static is None or not _is_function(static):
                continue
            method = _method(static, descriptor)
            if method.mistake:
                lines.append(
                    f"{where(static)}: {target.__qualname__}.{name} {method.mistake}, so calls of "
                    f"{service.name}/{name} end INTERNAL"
                )
            methods[f"/{service.name}/{name}"] = method
            found[service.name] = service
    return tuple(found.values()), methods, lines


def _is_function(static: object) -> bool:
    return isinstance(static, Batched) or plain_function(static) is not None


def _method(static: object, descriptor: MethodDescriptor) -> Method:
    """Return the method that answers an RPC, with any mistake in it."""
    if mistake := wrong_kind(static, descriptor):
        return Method(descriptor, static, takes_context=False, by_name=True, mistake=mistake)
    function = static.function if isinstance(static, Batched) else plain_function(static)
    assert function is not None, "the kind has been checked before"
    parameters = list(read_signature(function).parameters.values())
    if not isinstance(static, staticmethod):
        parameters = parameters[1:]  # self, or cls
    takes_context = any(each.name == _CONTEXT for each in parameters)
    mistake = _wrong_parameters(parameters)
    return Method(descriptor, static, takes_context, by_name=True, mistake=mistake)


def _wrong_parameters(parameters: Sequence[inspect.Parameter]) -> str:
    """Return why a call with the request and the context does not fit, empty where it does."""
    others = [each for each in parameters if each.name != _CONTEXT]
    context = next((each for each in parameters if each.name == _CONTEXT), None)
    if context is not None and (context is parameters[0] or context.kind not in _BY_KEYWORD):
        return f"takes {_CONTEXT} where the request goes, or by its position only"
    needed = [each.name for each in others if each.default is each.empty and each.kind in _NAMED]
    # The request comes first; no call has anything else.
    if not others or others[0].kind not in _FIRST or set(needed) - {others[0].name}:
        given = ", ".join(each.name for each in others) or "nothing"
        return f"takes {given} besides self, but a call has the request and {_CONTEXT} only"
    return ""


def behavior(bound: Callable[..., Any], method: Method) -> Callable[[Any, Any], Any]:
    """Return the handler that a server calls with a request and the context.

    Args:
        bound: The method of the instance.
        method: As it was found. One whose RPC answers with a stream yields, or returns a
            generator of either kind. Calls of one with a mistake end INTERNAL, with what Python
            says of them where its parameters are the mistake.
    """
    if method.mistake and (isinstance(method.function, Batched) or _is_of_wrong_kind(method)):
        return _refusing(bound, method.mistake)
    call = _passes_context(bound) if method.takes_context else _leaves_context_out(bound)
    if method.mistake:
        call = _telling(call)
    written = inspect.unwrap(bound)  # A decorator's wrapper hands on what it returns.
    if inspect.isasyncgenfunction(written):
        # An async generator itself, so that closing it closes the user's.
        async def yielding(request: object, context: object) -> AsyncIterator[object]:
            messages = call(request, context)
            try:
                async for message in messages:
                    yield message
            finally:
                await messages.aclose()

        return yielding
    is_async = inspect.iscoroutinefunction(written)
    kind = method.descriptor
    # A `def` that hands an iterator of requests on has to be in the loop, where that is async.
    hands_on = kind.client_streaming and not inspect.isgeneratorfunction(written)
    if not is_async and not (kind.server_streaming and hands_on):
        return call
    if kind.server_streaming:

        async def returning(request: object, context: object) -> AsyncIterator[object]:
            found = call(request, context)
            messages = await found if is_async else found
            try:
                if isinstance(messages, AsyncIterator):
                    async for message in messages:
                        yield message
                else:
                    for message in messages:
                        yield message
            finally:
                await iterators.close(messages)

        return returning

    async def unary(request: object, context: object) -> object:
        return await call(request, context)

    return unary


def _passes_context(bound: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def call(request: object, context: ServicerContext) -> Any:
        context.tell_request_id()
        return bound(request, grpc_context=context)

    return call


def _leaves_context_out(bound: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def call(request: object, context: ServicerContext) -> Any:
        context.tell_request_id()
        return bound(request)

    return call


def _is_of_wrong_kind(method: Method) -> bool:
    return wrong_kind(method.function, method.descriptor) is not None


def _refusing(bound: Callable[..., Any], mistake: str) -> Callable[[Any, Any], Any]:
    name = inspect.unwrap(bound).__qualname__

    async def refuse(_request: object, context: ServicerContext) -> Any:
        context.tell_request_id()
        raise Abort(grpc.StatusCode.INTERNAL, f"{name} {mistake}")

    return refuse


def _telling(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Tell the caller what Python says of a call that does not fit the method's parameters."""

    def telling(request: object, context: ServicerContext) -> Any:
        try:
            return call(request, context)
        except TypeError as error:
            trace = error.__traceback__
            in_method = trace and trace.tb_next and trace.tb_next.tb_next
            if in_method:  # A decorator's wrapper has passed what was missing.
                raise
            raise Abort(grpc.StatusCode.INTERNAL, str(error)) from error

    return telling
