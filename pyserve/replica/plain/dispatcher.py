"""The plain door of a deployment: calls with Python arguments, from handles and other clients.

``PlainDispatcher`` registers a handler for every method at a server, and runs calls without
one for local testing mode; both ways use the same handlers.
"""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.aio import Status, payload
from pyserve.api.handles.framing import FLUSH_METHOD
from pyserve.api.method import MethodOptions
from pyserve.batching import Batched
from pyserve.replica.checks import Method
from pyserve.replica.handlers import with_timeout
from pyserve.replica.plain.calls import Behavior, behavior_of, status_of_plain
from pyserve.replica.plain.exchange import Exchange
from pyserve.replica.plain.methods import Kind, PlainMethod, find_methods
from pyserve.replica.servicers import Handlers, Service
from pyserve.request import CURRENT, Request
from pyserve.serializers import names

if TYPE_CHECKING:
    from pyserve.aio import Server
    from pyserve.api.handles.calls import Message
    from pyserve.references import References


class PlainDispatcher:
    """Runs the plain calls of one replica.

    Args:
        instance: The constructed object, or the function that is deployed.
        application: Its application.
        deployment: Its deployment.
        rpcs: The RPCs that its class implements, by path.
        services: Those of its ``.proto``. One may have the name of the plain service: RPCs then
            answer clients, and plain methods the handles.
        batched: Methods that are batched without a decorator, by name.
        references: Holds large results; ``None``: results are always sent.
        development: Whether texts of exceptions may reach callers that are no handles.

    Attributes:
        service: The first part of every path, ``application.Deployment``.
        methods: What can be called, by name.
    """

    def __init__(
        self,
        instance: object,
        application: str,
        deployment: str,
        *,
        rpcs: Mapping[str, Method] | None = None,
        services: Sequence[Service] = (),
        batched: Mapping[str, Batched[Any]] | None = None,
        references: References | None = None,
        development: bool = False,
    ) -> None:
        self.service = f"{application}.{deployment}"
        # The RPCs that have the paths of plain methods.
        self._rpcs: Handlers = next((s.handlers for s in services if s.name == self.service), {})
        self.methods: Mapping[str, PlainMethod] = find_methods(instance, rpcs or {}, batched)
        flush = PlainMethod(
            name=FLUSH_METHOD,
            kind=Kind.ASYNC,
            function=self._flush,
            options=MethodOptions(weight=0),
        )
        self._deployment = deployment
        self._development = development
        self._behaviors: dict[str, Behavior] = {}
        self._all = {**self.methods, FLUSH_METHOD: flush}
        for name, method in self._all.items():
            label = f"{deployment}.{name}"
            streams = None if method.may_return_stream else method.streams
            exchange = Exchange(label, streams=streams, references=references)
            behavior = behavior_of(method, exchange)
            timeout_s = method.options.timeout_s
            self._behaviors[name] = (
                behavior if timeout_s is None else with_timeout(behavior, timeout_s)
            )

    # --- at a server --------------------------------------------------------------------

    def register(self, server: Server) -> None:
        """Register every method at ``server``, and what answers calls of others."""
        handlers = {name: self._handler(name) for name in self._all if name not in self._rpcs}
        server.add_registered_method_handlers(self.service, handlers)
        server.add_generic_rpc_handlers([_Others(self.service, self._missing_text)])

    def framed_handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return what answers handles at paths where an RPC answers everybody else, by path."""
        return {
            f"/{self.service}/{name}": (
                self._handler(name)
                if name in self._all
                else _refusing(self._missing_text(name), rpc.request_streaming)
            )
            for name, rpc in self._rpcs.items()
        }

    def paths(self) -> Iterator[tuple[str, PlainMethod]]:
        """Return path and method of everything that is registered."""
        for name, method in self._all.items():
            yield f"/{self.service}/{name}", method

    def weights(self) -> dict[str, int]:
        """Return the weight at the admission gate of each path that does not count 1."""
        return {
            path: method.options.weight
            for path, method in self.paths()
            if method.options.weight != 1
        }

    def codecs(self) -> dict[str, tuple[str, ...]]:
        """Return the content-subtypes that each path takes."""
        known = names()
        return {path: known for path, _ in self.paths()}

    def status_of(self, error: BaseException, context: Any) -> Status | None:
        """Return how a plain call ends that raised ``error``; ``None`` for other calls."""
        service, _, name = context.method.path[1:].partition("/")
        if service != self.service or (name in self._rpcs and not context.call.framed):
            return None
        return status_of_plain(error, context, development=self._development)

    # --- batches ------------------------------------------------------------------------

    async def _flush(self, name: str = "") -> None:
        if name and name not in self.methods:
            raise _missing(self._missing_text(name))
        for method in [self.methods[name]] if name else self.methods.values():
            method.flush()

    def _handler(self, name: str) -> grpc.RpcMethodHandler[Any, Any]:
        make: Any = grpc.unary_unary_rpc_method_handler
        if self._all[name].streams:
            make = grpc.unary_stream_rpc_method_handler
        made: grpc.RpcMethodHandler[Any, Any] = make(
            self._behaviors[name], response_serializer=payload
        )
        return made

    def _missing_text(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.methods, n=1)
        known = ", ".join(self.methods) or "none"
        hint = f"did you mean {close[0]!r}?" if close else f"it has {known}"
        return f"{self._deployment} has no method {name!r} that can be called; {hint}"

    # --- without a server ---------------------------------------------------------------

    async def unary(
        self,
        method: str,
        message: bytes,
        *,
        subtype: str,
        framed: bool,
        request: Request,
        executor: Executor | None = None,
    ) -> tuple[Message, str]:
        """Run one call that is answered with one value, and return its message and codec.

        To be called in a task of its own, since it makes ``request`` the current one.

        Args:
            method: The name.
            message: The request as it would come over the wire.
            subtype: The name of its codec.
            framed: Whether it is framed, as those of handles are.
            request: What ``current_request`` returns meanwhile.
            executor: Runs ``def`` methods; ``None``: that of the loop.

        Raises:
            Abort: There is no such method (UNIMPLEMENTED), or user code has chosen a status.
            KindError: The method answers with a stream.
            Exception: Whatever the method raises.
        """
        behavior = self._behavior(method)
        context = LocalContext(subtype, framed, request)
        CURRENT.set(request)
        if self._all[method].streams:
            # Only callers that take a streaming method for a unary one come here; the first step
            # raises the error.
            stream = self.stream(
                method, message, subtype=subtype, framed=framed, request=request, executor=executor
            )
            return await anext(stream), subtype
        if self._all[method].is_threaded:
            parts = await _called_on_thread(behavior, message, context, executor)
        else:
            parts = await behavior(message, context)
        return parts, context.call.response_subtype or subtype

    async def stream(
        self,
        method: str,
        message: bytes,
        *,
        subtype: str,
        framed: bool,
        request: Request,
        executor: Executor | None = None,
    ) -> AsyncIterator[Message]:
        """Run one call that is answered with a stream; see ``unary``.

        Closing it closes the generator of user code. A ``def`` generator makes its steps on the
        executor, one after the other.
        """
        behavior = self._behavior(method)
        context = LocalContext(subtype, framed, request)
        CURRENT.set(request)
        if self._all[method].streams:
            items = behavior(message, context)
        elif self._all[method].is_threaded:
            items = (await _called_on_thread(behavior, message, context, executor)).items
        else:
            items = (await behavior(message, context)).items
        if not isinstance(items, AsyncIterator):
            items = _on_threads(items, executor)
        try:
            async for parts in items:
                yield parts
        finally:
            await items.aclose()

    def _behavior(self, name: str) -> Behavior:
        behavior = self._behaviors.get(name)
        if behavior is None:
            raise _missing(self._missing_text(name))
        return behavior


class LocalCall:
    """Stands in for the native call of a message that did not come over a socket."""

    __slots__ = ("framed", "response_subtype", "subtype")

    def __init__(self, subtype: str, framed: bool) -> None:
        self.subtype = subtype
        self.framed = framed
        self.response_subtype = ""

    def set_response_subtype(self, subtype: str) -> None:
        """Answer with another codec than the request's."""
        self.response_subtype = subtype

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Return nothing: metadata are for other clients than handles."""
        return ()


class LocalContext:
    """The context of a call that did not come over a socket."""

    __slots__ = ("_request", "call", "kit", "plain", "request_id")

    def __init__(self, subtype: str, framed: bool, request: Request) -> None:
        self.call = LocalCall(subtype, framed)
        self.kit = _LocalKit(asyncio.get_running_loop())
        self.request_id = ""
        self.plain = True
        self._request = request

    def request(self) -> Request:
        """Return the request that is being handled."""
        return self._request

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, ``None`` without one."""
        deadline = self._request.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())


class _LocalKit:
    __slots__ = ("loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop


class _Others(grpc.GenericRpcHandler):
    """Answers calls of methods that the deployment does not have, and says which it has."""

    def __init__(self, service: str, text_of: Callable[[str], str]) -> None:
        self._prefix = f"/{service}/"
        self._text_of = text_of

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        path = handler_call_details.method
        if not path.startswith(self._prefix):
            return None
        return _refusing(self._text_of(path.removeprefix(self._prefix)))


def _refusing(text: str, request_streaming: bool = False) -> grpc.RpcMethodHandler[Any, Any]:
    async def refuse(_request: object, _context: object) -> bytes:
        raise _missing(text)

    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_unary_rpc_method_handler
    make: Any = stream if request_streaming else unary
    made: grpc.RpcMethodHandler[Any, Any] = make(refuse, response_serializer=payload)
    return made


def _missing(text: str) -> Exception:
    from pyserve.errors import Abort

    return Abort(grpc.StatusCode.UNIMPLEMENTED, text)


async def _called_on_thread(
    behavior: Behavior, message: bytes, context: LocalContext, executor: Executor | None
) -> Any:
    def call() -> Any:
        try:
            return behavior(message, context)
        except StopIteration as error:  # No future can carry it.
            raise RuntimeError("a method raised StopIteration") from error

    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(executor, run, call)


async def _on_threads(
    items: Iterator[Message], executor: Executor | None
) -> AsyncIterator[Message]:
    """Make the steps of a generator on threads; close it there too."""
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()

    def step() -> Message | None:
        return next(items, None)

    try:
        while (parts := await loop.run_in_executor(executor, context.run, step)) is not None:
            yield parts
    finally:
        close: Callable[[], None] = items.close  # type: ignore[attr-defined]  # a generator
        await loop.run_in_executor(executor, context.run, close)
