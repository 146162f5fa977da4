"""The plain door of a deployment: calls with Python arguments, from handles and other clients.

``PlainDispatcher`` registers a handler for every method at a server.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pyserve.serializers import names

if TYPE_CHECKING:
    from pyserve.aio import Server
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
