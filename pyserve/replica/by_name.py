"""RPCs that a class answers by the names of its methods, without the generated base.

Ray Serve finds them so: ``grpc_servicer_functions`` name the services, every application's
ingress deployment answers those of their methods that it has, a parameter ``grpc_context`` gets
the context, and the trailing metadata have ``request_id``.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor

from pyserve.aio import ServicerContext
from pyserve.batching import Batched
from pyserve.errors import Abort
from pyserve.observe.places import describe
from pyserve.replica import iterators
from pyserve.replica.checks import Method, plain_function, where, wrong_kind
from pyserve.replica.servicers import Service, service_of_function
from pyserve.signatures import read_signature
from pyserve.types import ServiceName

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
