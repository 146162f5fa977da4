"""Finds the methods of a deployment that handles can call, and of what kind each of them is.

Done once, when the replica starts: a call looks up only the method's number.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyserve.api.deployment import is_function
from pyserve.api.method import MethodOptions, options_of
from pyserve.batching import Batched
from pyserve.errors import UsageError
from pyserve.replica.checks import Method, where
from pyserve.stepping.decorator import Stepped

CALL = "__call__"


class Kind(Enum):
    """How a method runs, and whether it answers with one value or with a stream."""

    ASYNC = "async def"
    SYNC = "def"
    ASYNC_GENERATOR = "async def with yield"
    GENERATOR = "def with yield"
    BATCHED = "batched"
    BATCHED_GENERATOR = "batched with yield"
    STEPPED = "answered by steps"


_STREAMS = frozenset({Kind.ASYNC_GENERATOR, Kind.GENERATOR, Kind.BATCHED_GENERATOR})
_RETURNING = frozenset({Kind.ASYNC, Kind.SYNC, Kind.STEPPED})
_THREADED = frozenset({Kind.SYNC, Kind.GENERATOR})


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMethod:
    """One method that handles can call.

    Attributes:
        name: Its name; ``__call__`` for a deployed function.
        kind: How it runs.
        function: Takes the arguments of one call; for the batched kinds it submits them.
        options: What ``@pyserve.method`` says.
        takes_context: It implements an RPC and wants the context after the request.
        flush: For the batched kinds: releases the calls that still wait for a full batch.
        written: The user's own method, bound; for the batched kinds it takes lists.
    """

    name: str
    kind: Kind
    function: Callable[..., Any]
    options: MethodOptions
    takes_context: bool = False
    flush: Callable[[], None] = _nothing
    written: Callable[..., Any] = _nothing

    @property
    def streams(self) -> bool:
        """Whether a call is answered with a stream."""
        return self.kind in _STREAMS

    @property
    def may_return_stream(self) -> bool:
        """Whether it may return a generator, so that only its result tells."""
        return self.kind in _RETURNING

    @property
    def is_threaded(self) -> bool:
        """Whether it runs on the pool of threads."""
        return self.kind in _THREADED


def find_methods(
    instance: object,
    rpcs: Mapping[str, Method],
    batched: Mapping[str, Batched[Any]] | None = None,
) -> dict[str, PlainMethod]:
    """Return the callable methods of a deployment by name.

    They are those of the class whose names do not begin with an underscore, and ``__call__``.
    RPCs that read a stream, or write to their context, can only be called with stubs.

    Args:
        instance: The constructed object, or the function that is deployed.
        rpcs: The implemented RPCs by path, as ``check_class`` returns them.
        batched: What takes the places of methods of these names.

    Raises:
        UsageError: A method has invalid marks; the text names its place.
    """
    if is_function(instance):
        return {CALL: _method(CALL, instance, instance)}
    by_name = {each.descriptor.name: each for each in rpcs.values() if not each.by_name}
    found: dict[str, PlainMethod] = {}
    for name, static in _public(type(instance)):
        if (rpc := by_name.get(name)) is None:
            if not _is_generated(type(instance), name):
                form = (batched or {}).get(name, static)
                found[name] = _method(name, form, _bound(instance, name, form))
        elif (method := _rpc_method(name, rpc, _bound(instance, name, rpc.function))) is not None:
            found[name] = method
    return found


def uncallable_text(target: type) -> str:
    """Return a warning about a class without callable methods, often for a forgotten base.

    Empty for a class with a public method.
    """
    if next(_public(target), None) is not None:
        return ""
    bases = ", ".join(base.__qualname__ for base in target.__bases__)
    return (
        f"{target.__qualname__} has neither a generated servicer among its bases ({bases}) nor a "
        f"public method, so nobody can call it; write a method, or __call__"
    )


def _bound(instance: object, name: str, static: object) -> Any:
    return static.bind(instance) if isinstance(static, Batched) else getattr(instance, name)


def _public(target: type) -> Iterator[tuple[str, object]]:
    for name in dir(target):
        if name.startswith("_") and name != CALL:
            continue
        static = inspect.getattr_static(target, name)
        if isinstance(static, property | functools.cached_property | type):
            continue
        if _is_method(static):
            yield name, static


def _is_method(static: object) -> bool:
    if isinstance(static, staticmethod | classmethod | functools.partialmethod):
        return True
    # Other descriptors that can be called: batched and multiplexed methods, compiled functions.
    return callable(static) and hasattr(type(static), "__get__")


def _is_generated(target: type, name: str) -> bool:
    """Say whether a method is the body that generated code gives to RPCs that are left out."""
    owner = next(owner for owner in target.__mro__ if name in vars(owner))
    return owner.__module__.endswith("_pb2_grpc")


def _method(name: str, static: object, bound: Any, *, takes_context: bool = False) -> PlainMethod:
    kind = _kind(static, bound)
    is_batched = kind in _BATCHED
    method = PlainMethod(
        name=name,
        kind=kind,
        function=bound.__pyserve_submit__ if is_batched else bound,
        options=options_of(static.function if isinstance(static, Batched) else bound),
        takes_context=takes_context,
        flush=bound.flush if is_batched else _nothing,
        written=bound.__wrapped__ if is_batched else bound,
    )
    if method.options.timeout_s is not None and method.is_threaded:
        raise UsageError(
            f"{where(static)}: {name} has a timeout_s, but a plain `def` cannot be stopped; make "
            f"it `async def`"
        )
    return method


def _rpc_method(name: str, rpc: Method, bound: Any) -> PlainMethod | None:
    descriptor = rpc.descriptor
    if descriptor.client_streaming:
        return None
    method = _method(name, rpc.function, bound, takes_context=rpc.takes_context)
    if descriptor.server_streaming and not method.streams:
        return None
    return method


_BATCHED = frozenset({Kind.BATCHED, Kind.BATCHED_GENERATOR})


def _kind(static: object, bound: Any) -> Kind:
    if isinstance(static, Stepped):
        return Kind.STEPPED
    if isinstance(static, Batched):
        yields = inspect.isasyncgenfunction(static.function)
        return Kind.BATCHED_GENERATOR if yields else Kind.BATCHED
    for function in _callables(bound):
        if inspect.isasyncgenfunction(function):
            return Kind.ASYNC_GENERATOR
        if inspect.iscoroutinefunction(function):
            return Kind.ASYNC
        if inspect.isgeneratorfunction(function):
            return Kind.GENERATOR
    return Kind.SYNC


def _callables(bound: Any) -> Iterable[Any]:
    """Return the functions that show the kind: the callable, and ``__call__`` of an object."""
    while isinstance(bound, functools.partial):
        bound = bound.func
    return bound, getattr(bound, CALL, None)
