"""Compiles an ``RpcMethodHandler`` into the function that starts its calls."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

import grpc

from pyserve.aio._metadata import (
    CLIENT_METADATA_BYTES,
    Fitted,
    WireMetadata,
    fitting,
    fitting_failure,
    size_bytes,
)
from pyserve.aio._options import ServerSettings
from pyserve.aio._outcome import UnreadableRequestError, WrongResponseError
from pyserve.bridge import EventReceiver, rust
from pyserve.observe.failures import text_of
from pyserve.observe.log_rate_limit import LogRateLimit

_LOGGER = logging.getLogger(__name__)

RpcMethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Serializer: TypeAlias = "Callable[[Any], rust.Payload]"
Deserializer = Callable[[bytes], Any]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True)
class CallKit:
    """The objects that all calls of one server share.

    Attributes:
        owner: Tells the calls of this server from others on the same endpoint.
        loop: The server's loop.
        receivers: Where a call receives events while it runs.
        at_turn_end: Calls a function when the tasks of this turn of the loop have run; on the loop.
        flush: Schedules (on the loop) or does (on threads) the flush of queued commands.
        spawn: Starts a coroutine as a task.
        executor: Gives the pool of ``def`` handlers.
        default_compression: Of messages whose handler does not choose.
        settings: The server's settings.
        client_metadata_bytes: What clients take of metadata, with the text of a status.
        lines: Of the log, that calls would repeat.
    """

    owner: object
    loop: asyncio.AbstractEventLoop
    receivers: dict[int, EventReceiver]
    at_turn_end: Callable[[Callable[[], None]], None]
    flush: Callable[[], None]
    spawn: Spawn
    executor: Callable[[], Executor]
    default_compression: int
    settings: ServerSettings
    client_metadata_bytes: int = CLIENT_METADATA_BYTES
    lines: LogRateLimit = field(default_factory=LogRateLimit)

    def fitting_trailers(self, path: str, trailers: WireMetadata) -> WireMetadata:
        """Return what fits of the trailing metadata of a failure, whose code has to arrive.

        For callers that take as much as a block: handles, and those of plain HTTP.
        """
        kept = fitting(trailers)
        self._tell_left_out(path, trailers, kept, "one block (48 KiB)")
        return kept

    def fitting_failure(
        self, call: rust.ServerCall, path: str, details: str, trailers: WireMetadata
    ) -> Fitted:
        """Return what the caller takes of text and metadata of a failure."""
        if call.framed:  # A handle, which takes more than clients of grpcio do.
            return Fitted(details, self.fitting_trailers(path, trailers))
        limit = self.client_metadata_bytes
        fitted = fitting_failure(details, trailers, limit)
        clients = (
            f"clients, which take {limit} bytes with text and headers (grpc.max_metadata_size)"
        )
        self._tell_left_out(path, trailers, fitted.trailers, clients)
        return fitted

    def _tell_left_out(
        self, path: str, trailers: WireMetadata, kept: WireMetadata, limit: str
    ) -> None:
        if len(kept) < len(trailers) and self.lines.allows(path):
            names = ", ".join(sorted({key for key, _ in set(trailers) - set(kept)}))
            _LOGGER.warning(
                "%s fails with %d bytes of trailing metadata, too much for %s; left out: %.200s",
                path,
                sum(map(size_bytes, trailers)),
                limit,
                names,
            )


class Runner(Protocol):
    """Runs a call inside the task that resolved its handler; ``None``: it runs elsewhere."""

    def __call__(
        self, context: Any, token: int, message: bytes | None
    ) -> Coroutine[Any, Any, None] | None:
        """Start or return the rest of the call."""


@dataclass(eq=False)
class Method:
    """One method of a server, ready to start calls.

    Attributes:
        path: ``/package.Service/Method``.
        request_streaming, response_streaming: The kind.
        function: The user's handler.
        deserialize, serialize: Between messages and bytes.
        response_type: The type that responses must have, ``None`` when it is not known.
    """

    path: str
    request_streaming: bool
    response_streaming: bool
    function: Callable[..., Any]
    deserialize: Deserializer
    serialize: Serializer
    response_type: type | None

    def read(self, message: bytes) -> Any:
        """Deserialize a request.

        Raises:
            UnreadableRequestError: The deserializer raised; what, is the cause.
        """
        try:
            return self.deserialize(message)
        except Exception as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> UnreadableRequestError:
        """Return the error for a request for which the deserializer raised ``error``."""
        return UnreadableRequestError(
            f"the request is no message that {self.path} takes: {type(error).__name__}"
        )

    def serialize_checked(self, response: Any) -> rust.Payload:
        """Serialize ``response``.

        Raises:
            WrongResponseError: It is not what the method returns; the text names both types.
        """
        try:
            if self.response_type is None or type(response) is self.response_type:
                raw: Any = self.serialize(response)
                if isinstance(raw, bytes):
                    return raw
                cause: Exception | None = None
            else:
                cause = None
        except Exception as error:
            cause = error
        raise WrongResponseError(self._wrong_response_text(response, cause)) from cause

    def _wrong_response_text(self, response: Any, cause: Exception | None) -> str:
        expected = "what its serializer takes"
        if self.response_type is not None:
            expected = f"{self.response_type.__module__}.{self.response_type.__qualname__}"
        text = (
            f"the handler of {self.path} returned {type(response).__module__}."
            f"{type(response).__qualname__}, expected {expected}"
        )
        return text if cause is None else f"{text} ({type(cause).__name__}: {text_of(cause)})"


class PayloadMethod(Method):
    """A method whose handler returns its messages as the ring takes them: bytes, or parts."""

    def serialize_checked(self, response: Any) -> rust.Payload:
        """Return ``response``; the handler is our own and has made it."""
        return response  # type: ignore[no-any-return]


class Messages:
    """Several responses, which a handler of one response may return instead, as they are made.

    An ``async def`` handler clears ``context.plain`` before.

    Args:
        items: Serialized already. The steps of one that is not async are made on threads.
    """

    __slots__ = ("items",)

    def __init__(self, items: AsyncIterator[Any] | Iterator[Any]) -> None:
        self.items = items


def payload(value: rust.Payload) -> rust.Payload:
    """Stand, as the ``response_serializer`` of a handler, for "it returns payloads"."""
    return value


def handler_function(handler: RpcMethodHandler) -> Callable[..., Any]:
    """Return the user's function of ``handler``, whatever its kind."""
    if handler.request_streaming:
        function = handler.stream_stream if handler.response_streaming else handler.stream_unary
    else:
        function = handler.unary_stream if handler.response_streaming else handler.unary_unary
    if function is None:
        raise TypeError(f"the method handler {handler!r} has no function for its kind")
    return function


def make_method(path: str, handler: RpcMethodHandler) -> Method:
    """Describe ``handler`` as the method at ``path``."""
    kind = PayloadMethod if handler.response_serializer is payload else Method
    return kind(
        path=path,
        request_streaming=bool(handler.request_streaming),
        response_streaming=bool(handler.response_streaming),
        function=handler_function(handler),
        deserialize=handler.request_deserializer or _identity,
        serialize=handler.response_serializer or _identity,
        response_type=_response_type(path, handler.response_serializer),
    )


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether it is an ``async def``, also in a partial or as an object's ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (the method itself is examined)
    )


def is_async_generator_function(function: Callable[..., Any]) -> bool:
    """Return whether it is an ``async def`` with ``yield``, also as an object's ``__call__``."""
    return inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(
        getattr(function, "__call__", None)  # noqa: B004 (the method itself is examined)
    )


def make_spawn(loop: asyncio.AbstractEventLoop) -> Spawn:
    """Return the cheapest way to start tasks on ``loop``.

    A task factory that somebody installed is honoured. Without one the task is made directly,
    eagerly where Python can; a fixed name spares the formatting of a counter.
    """
    if loop.get_task_factory() is not None:
        return loop.create_task
    if sys.version_info >= (3, 12):
        return partial(asyncio.Task, loop=loop, name="pyserve call", eager_start=True)
    return partial(asyncio.Task, loop=loop, name="pyserve call")


def _identity(value: Any) -> Any:
    return value


def _response_type(path: str, serializer: Serializer | None) -> type | None:
    # protobuf's serializer accepts a message of any type, so only the descriptor can tell
    # that a handler returned the wrong one.
    if serializer is None:
        return bytes
    if getattr(serializer, "__name__", "") != "SerializeToString":
        return None
    from google.protobuf import descriptor_pool, message_factory

    try:
        found = descriptor_pool.Default().FindMethodByName(path[1:].replace("/", "."))
    except KeyError:
        return None
    return message_factory.GetMessageClass(found.output_type)
