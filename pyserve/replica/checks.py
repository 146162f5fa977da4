"""Checks a class against its services before it is constructed: names, kinds, signatures.

Mistakes that would otherwise show up as a failing call, or as silence, end the deployment with
the file, the line, and the signature to write.
"""

from __future__ import annotations

import difflib
import dis
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from pyserve.api.method import options_of
from pyserve.batching import Batched
from pyserve.errors import ServicerError
from pyserve.replica.servicers import Service, expected_signature
from pyserve.signatures import read_signature

# A typing mistake or another case scores above this: Clasify/Classify 0.93, classify/Classify
# 0.88, Watch/Match 0.8; Reset/Result 0.73 does not.
_SIMILARITY_MIN = 0.75
# self, the request, and the context.
_WITH_CONTEXT = 3
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the user's class that implements an RPC.

    Attributes:
        descriptor: Its RPC.
        function: What the class holds, a ``Batched`` included.
        takes_context: Whether it has a parameter for the context.
        by_name: The class does not implement the service; see ``handlers``.
        mistake: Why a method that was found by its name cannot answer; empty: it can.
    """

    descriptor: MethodDescriptor
    function: object
    takes_context: bool
    by_name: bool = False
    mistake: str = ""


def check_class(target: type, services: Sequence[Service]) -> tuple[dict[str, Method], list[str]]:
    """Match the methods of a class with the RPCs of its services.

    Returns:
        The implemented methods by path (``/pkg.Service/Method``), and one warning for each
        service of which RPCs are left out.

    Raises:
        ServicerError: Some method does not fit; every mistake is listed.
    """
    implemented: dict[str, Method] = {}
    warnings: list[str] = []
    mistakes: list[str] = []
    for service in services:
        missing: list[MethodDescriptor] = []
        for name, descriptor in service.methods.items():
            if _owner(target, name) is service.base:
                misspelt = _close_name(target, name, services)
                if misspelt is None:
                    missing.append(descriptor)
                else:
                    mistakes.append(_misspelt(target, misspelt, descriptor))
                continue
            try:
                method = _check_method(target, descriptor)
            except ServicerError as error:
                mistakes.append(str(error))
            else:
                implemented[f"/{service.name}/{name}"] = method
        if missing:
            warnings.append(_missing(target, service, missing))
    if mistakes:
        raise ServicerError("\n".join(mistakes))
    return implemented, warnings


def where(function: object) -> str:
    """Return ``file:line`` of a function, or what can be said about a callable without one."""
    if isinstance(function, Batched):
        function = function.function
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _owner(target: type, name: str) -> type:
    return next(owner for owner in target.__mro__ if name in vars(owner))


def _close_name(target: type, name: str, services: Sequence[Service]) -> str | None:
    """Return a public method that is not an RPC itself and looks like a misspelt ``name``."""
    rpcs = {rpc for service in services for rpc in service.methods}
    generated = {service.base for service in services}
    candidates = {
        attribute.lower(): attribute
        for attribute in dir(target)
        if not attribute.startswith("_")
        and attribute not in rpcs
        and callable(getattr(target, attribute))
        and _owner(target, attribute) not in generated
    }
    close = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=_SIMILARITY_MIN)
    without_underscores = {each.replace("_", ""): each for each in candidates}
    snake_case = without_underscores.get(name.lower())
    if snake_case is not None:
        return candidates[snake_case]
    return candidates[close[0]] if close else None


def _missing(target: type, service: Service, descriptors: Sequence[MethodDescriptor]) -> str:
    signatures = "".join(f"\n    {expected_signature(each)}" for each in descriptors)
    return (
        f"{target.__qualname__} leaves out what follows of {service.name}; calls of it answer "
        f"UNIMPLEMENTED:{signatures}"
    )


def _misspelt(target: type, name: str, descriptor: MethodDescriptor) -> str:
    function = inspect.getattr_static(target, name)
    return (
        f"{where(function)}: {target.__qualname__}.{name} is no method of "
        f"{descriptor.containing_service.full_name}, but {descriptor.name} is, and is missing; "
        f"rename it:\n    {expected_signature(descriptor)}\n"
        f"  (or begin its name with an underscore if it is meant to be something else)"
    )


def _check_method(target: type, descriptor: MethodDescriptor) -> Method:
    static = inspect.getattr_static(target, descriptor.name)
    label = f"{where(static)}: {target.__qualname__}.{descriptor.name}"
    mistake = wrong_kind(static, descriptor)
    if mistake is None:
        takes_context, mistake = _read_signature(static)
        if mistake is None:
            mistake = _wrong_combination(static, descriptor, takes_context=takes_context)
    if mistake is not None:
        raise ServicerError(f"{label} {mistake}; write\n    {expected_signature(descriptor)}")
    return Method(descriptor, static, takes_context)


def wrong_kind(static: object, descriptor: MethodDescriptor) -> str | None:
    """Return why a method does not fit its RPC's kind."""
    if isinstance(static, Batched):
        yields = inspect.isasyncgenfunction(static.function)
        if descriptor.client_streaming:
            return "is batched, but its RPC takes a stream; only single requests can be batched"
        if descriptor.server_streaming and not yields:
            return "is batched, but its RPC answers with a stream; make it an async generator"
        if yields and not descriptor.server_streaming:
            return "yields, but its RPC answers with one message; return a list of them"
        return None
    function = plain_function(static)
    if function is None:
        return f"is no function but {static!r}"
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if is_generator and not descriptor.server_streaming:
        return "yields, but its RPC answers with one message; return it"
    return None


def _read_signature(static: object) -> tuple[bool, str | None]:
    """Return whether the method takes a context, or what is wrong with its parameters."""
    function: Callable[..., object] | None
    if isinstance(static, Batched):
        function, what = static.function, "the list of requests"
    else:
        function, what = plain_function(static), "the request (or the iterator of requests)"
    assert function is not None, "the kind has been checked before"
    parameters = list(read_signature(function).parameters.values())
    if not isinstance(static, staticmethod):
        parameters = parameters[1:]  # self, or cls
    kinds = inspect.Parameter
    if any(each.kind is kinds.VAR_POSITIONAL for each in parameters):
        return True, None
    keyword = [
        each.name
        for each in parameters
        if each.kind is kinds.KEYWORD_ONLY and each.default is kinds.empty
    ]
    if keyword:
        return False, f"has the keyword-only parameter {keyword[0]!r}, which no call sets"
    positional = [
        each
        for each in parameters
        if each.kind in {kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD}
    ]
    required = sum(each.default is kinds.empty for each in positional)
    if not positional or required > 2:
        given = ", ".join(each.name for each in positional) or "nothing"
        return False, f"takes {given} besides self, but is called with {what} and the context"
    return len(positional) > 1, None


def _wrong_combination(
    static: object, descriptor: MethodDescriptor, *, takes_context: bool
) -> str | None:
    if isinstance(static, Batched):
        return None
    function = plain_function(static)
    if descriptor.server_streaming and inspect.iscoroutinefunction(function):
        if not takes_context:
            return "returns, but its RPC answers with a stream, and it has no context to write to"
        if _leaves_context(function):
            return "returns, but its RPC answers with a stream, and it leaves its context alone"
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if options_of(function).timeout_s is not None and not is_async:
        return "has a timeout_s, but a plain `def` cannot be stopped; make it `async def`"
    return None


def _leaves_context(function: Any) -> bool:
    """Say whether a method surely answers by its return: it never looks at its context."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None or code.co_argcount < _WITH_CONTEXT:
        return False  # It takes what comes, and may hand it on.
    context = code.co_varnames[_WITH_CONTEXT - 1]
    steps = list(dis.get_instructions(code))
    # An inner function may write to it; and a method that always raises answers by that.
    is_read = context in code.co_cellvars or any(
        each.opname.startswith("LOAD_FAST") and _names(each.argval, context) for each in steps
    )
    return not is_read and any(each.opname in _RETURNS for each in steps)


def _names(argument: object, name: str) -> bool:
    # Two names at once, since Python 3.13.
    return argument == name or (isinstance(argument, tuple) and name in argument)


def plain_function(static: object) -> Callable[..., object] | None:
    """Return the function behind a class's attribute, if it is a Python function."""
    if isinstance(static, staticmethod | classmethod):
        static = static.__func__
    return static if inspect.isroutine(static) and callable(static) else None
