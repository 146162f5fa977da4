"""Calls that go through client interceptors.

The chain runs in a task; the call object that the application holds delegates to what the
chain gives back: a call, or a plain response or iterator that is dressed up as one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from pyserve.aio._call_state import LOCALLY_CANCELLED, RPC_FINISHED, RPC_HALF_CLOSED

_API_STYLE_ERROR = "The iterator and read/write APIs may not be mixed on a single RPC."

Leaf = Callable[[grpc.aio.ClientCallDetails, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Kind:
    """One of the four kinds of calls, as its interceptors see it."""

    name: str
    interceptor_type: type
    call_type: type

    @property
    def request_streaming(self) -> bool:
        """The client sends a stream."""
        return self.name.startswith("stream")

    @property
    def response_streaming(self) -> bool:
        """The server sends a stream."""
        return self.name.endswith("stream")


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("unary_unary", grpc.aio.UnaryUnaryClientInterceptor, grpc.aio.UnaryUnaryCall),
        Kind("unary_stream", grpc.aio.UnaryStreamClientInterceptor, grpc.aio.UnaryStreamCall),
        Kind("stream_unary", grpc.aio.StreamUnaryClientInterceptor, grpc.aio.StreamUnaryCall),
        Kind("stream_stream", grpc.aio.StreamStreamClientInterceptor, grpc.aio.StreamStreamCall),
    )
}


class _Chain:
    """Runs interceptors in order, the real call last."""

    def __init__(self, kind: Kind, leaf: Leaf) -> None:
        self._kind = kind
        self._leaf = leaf
        self._last_call: Any = None

    async def run(
        self,
        interceptors: Sequence[Any],
        details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        if not interceptors:
            self._last_call = await self._leaf(details, request)
            return self._last_call
        intercept = getattr(interceptors[0], f"intercept_{self._kind.name}")
        continuation = partial(self.run, interceptors[1:])
        result = await intercept(continuation, details, request)
        if isinstance(result, self._kind.call_type) or _is_call(result):
            return result
        if self._kind.response_streaming:
            self._last_call = _ReplacedResponses(self._last_call, result)
            return self._last_call
        return _FinishedCall(result)


def _is_call(result: Any) -> bool:
    """Tell whether an interceptor has returned a call of another type, and not a response."""
    return isinstance(result, grpc.aio.Call) and hasattr(result, "__await__")


def _call_of(task: asyncio.Task[Any]) -> Any:
    """Return the call that a chain has made; ``None`` when it runs, failed or was cancelled."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


def _cancel(task: asyncio.Task[Any]) -> bool:
    if not task.done():
        return task.cancel()
    call = _call_of(task)
    return False if call is None else bool(call.cancel())


class InterceptedCall:
    """The call object of an intercepted call, of any kind."""

    def __init__(
        self,
        kind: Kind,
        interceptors: Sequence[Any],
        details: grpc.aio.ClientCallDetails,
        request: Any,
        leaf: Leaf,
    ) -> None:
        self._timeout = details.timeout
        self._requests: _WrittenRequests | None = None
        if kind.request_streaming and request is None:
            self._requests = request = _WrittenRequests()
        chain = _Chain(kind, leaf)
        self._task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(
            chain.run(interceptors, details, request), name="pyserve client interceptors"
        )

    def _call(self) -> Any:
        """Return the call below; ``None`` when the chain runs, failed or was cancelled."""
        return _call_of(self._task)

    # --- life ---------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancel the chain or the call below; ``False`` when both have ended."""
        return _cancel(self._task)

    def cancelled(self) -> bool:
        """Tell whether the call ended with CANCELLED."""
        if self._task.cancelled():
            return True
        if not self._task.done():
            return False
        error = self._task.exception()
        if error is not None:
            return (
                isinstance(error, grpc.aio.AioRpcError)
                and error.code() is grpc.StatusCode.CANCELLED
            )
        return bool(self._task.result().cancelled())

    def done(self) -> bool:
        """Tell whether the call has ended."""
        if not self._task.done():
            return False
        call = self._call()
        return True if call is None else bool(call.done())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback(call)`` when the call has ended; at once when it has."""
        if not self._task.done():
            self._task.add_done_callback(lambda _task: self.add_done_callback(callback))
            return
        call = self._call()
        if call is None or call.done():
            callback(self)
        else:
            call.add_done_callback(lambda _call: callback(self))

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; the whole timeout while the chain runs."""
        call = self._call()
        if call is None:
            return self._timeout
        return call.time_remaining()  # type: ignore[no-any-return]

    def __del__(self) -> None:
        task = getattr(self, "_task", None)
        if task is not None and not self.done():
            # The garbage collector may run in any thread, and in the middle of anything.
            with contextlib.suppress(RuntimeError):  # The loop has been closed meanwhile.
                task.get_loop().call_soon_threadsafe(_cancel, task)

    # --- status -------------------------------------------------------------------------

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the response headers; ``None`` when the chain was cancelled."""
        return await self._ask("initial_metadata", None)  # type: ignore[no-any-return]

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the trailers; ``None`` when the chain was cancelled."""
        return await self._ask("trailing_metadata", None)  # type: ignore[no-any-return]

    async def code(self) -> grpc.StatusCode:
        """Return the status code."""
        return await self._ask("code", grpc.StatusCode.CANCELLED)  # type: ignore[no-any-return]

    async def details(self) -> str:
        """Return the status text."""
        return await self._ask("details", LOCALLY_CANCELLED)  # type: ignore[no-any-return]

    async def debug_error_string(self) -> str | None:
        """Return more words about the status."""
        return await self._ask("debug_error_string", "")  # type: ignore[no-any-return]

    async def wait_for_connection(self) -> None:
        """Wait until the call below is connected."""
        call = await self._below()
        await call.wait_for_connection()

    async def _ask(self, question: str, when_cancelled: Any) -> Any:
        try:
            call = await self._below()
        except grpc.aio.AioRpcError as error:
            return getattr(error, question)()
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            return when_cancelled
        return await getattr(call, question)()

    async def _below(self) -> Any:
        # Cancelling a task that only waits for the status must not cancel the call.
        return await asyncio.shield(self._task)


class _UnaryResponse(InterceptedCall):
    def __await__(self) -> Generator[Any, None, Any]:
        call = yield from self._task.__await__()
        return (yield from call.__await__())


class _StreamResponse(InterceptedCall):
    _responses: AsyncIterator[Any] | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._responses is None:
            self._responses = _iterate(self, self._task)
        return self._responses

    async def read(self) -> Any:
        """Read one response, ``grpc.aio.EOF`` after the last."""
        return await anext(self.__aiter__(), grpc.aio.EOF)


async def _iterate(holder: Any, task: asyncio.Task[Any]) -> AsyncIterator[Any]:
    # ``holder`` keeps the intercepted call alive while somebody iterates.
    call = await task
    async for response in call:
        yield response
    del holder


class _StreamRequest(InterceptedCall):
    async def write(self, request: Any) -> None:
        """Send one request through the chain's request iterator.

        Raises:
            asyncio.InvalidStateError: The call has ended, or ``done_writing`` was called.
            grpc.aio.UsageError: The call got a request iterator.
        """
        requests = self._written_requests()
        try:
            call = await self._task
        except (asyncio.CancelledError, grpc.aio.AioRpcError) as error:
            raise asyncio.InvalidStateError(RPC_FINISHED) from error
        if call.done():
            raise asyncio.InvalidStateError(RPC_FINISHED)
        if requests.ended:
            raise asyncio.InvalidStateError(RPC_HALF_CLOSED)
        await requests.put(request, call)
        if call.done():
            raise asyncio.InvalidStateError(RPC_FINISHED)

    async def done_writing(self) -> None:
        """Say that no request follows. Idempotent."""
        self._written_requests().end()

    def _written_requests(self) -> _WrittenRequests:
        if self._requests is None:
            raise grpc.aio.UsageError(_API_STYLE_ERROR)
        return self._requests


class _WrittenRequests:
    """The request iterator that interceptors get when the application calls ``write``.

    It has as many requests as there are writers that wait, since each waits until its own is taken.
    """

    def __init__(self) -> None:
        self.ended = False
        self._waiting: deque[tuple[Any, asyncio.Future[None]]] = deque()
        self._news = asyncio.Event()
        self._follows = False
        self._is_over = False

    async def put(self, request: Any, call: Any) -> None:
        """Hand over one request and wait until it was taken, or the call has ended."""
        if not self._follows:
            self._follows = True
            call.add_done_callback(self._on_done)
        if self._is_over:
            return
        item = request, asyncio.get_running_loop().create_future()
        self._waiting.append(item)
        self._news.set()
        try:
            await item[1]
        except asyncio.CancelledError:
            # The writer has given up: its request is not sent, and must not stay here.
            self._waiting = deque(each for each in self._waiting if each is not item)
            raise

    def end(self) -> None:
        """Say that no request follows. Idempotent."""
        self.ended = True
        self._news.set()

    def __aiter__(self) -> _WrittenRequests:
        return self

    async def __anext__(self) -> Any:
        while not self._waiting:
            if self.ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        request, taken = self._waiting.popleft()
        if not taken.done():
            taken.set_result(None)
        return request

    def _on_done(self, _call: object) -> None:
        self._is_over = True
        for _, taken in self._waiting:
            if not taken.done():
                taken.set_result(None)
        self._waiting.clear()


class InterceptedUnaryUnaryCall(_UnaryResponse, grpc.aio.UnaryUnaryCall[Any, Any]):
    """An intercepted call with one request and one response."""


class InterceptedUnaryStreamCall(_StreamResponse, grpc.aio.UnaryStreamCall[Any, Any]):
    """An intercepted call with one request and many responses."""


class InterceptedStreamUnaryCall(
    _StreamRequest, _UnaryResponse, grpc.aio.StreamUnaryCall[Any, Any]
):
    """An intercepted call with many requests and one response."""


class InterceptedStreamStreamCall(
    _StreamRequest, _StreamResponse, grpc.aio.StreamStreamCall[Any, Any]
):
    """An intercepted call with many requests and many responses."""


INTERCEPTED_CALLS: dict[str, type[Any]] = {
    "unary_unary": InterceptedUnaryUnaryCall,
    "unary_stream": InterceptedUnaryStreamCall,
    "stream_unary": InterceptedStreamUnaryCall,
    "stream_stream": InterceptedStreamStreamCall,
}


class _FinishedCall(grpc.aio.UnaryUnaryCall[Any, Any]):
    """A response that an interceptor made itself, as a call that ended with OK."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)

    def time_remaining(self) -> float | None:
        return None

    async def initial_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata()

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata()

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    async def debug_error_string(self) -> str:
        return ""

    async def wait_for_connection(self) -> None:
        return None

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self._response


class _ReplacedResponses(grpc.aio.UnaryStreamCall[Any, Any], grpc.aio.StreamStreamCall[Any, Any]):
    """A call whose responses an interceptor replaced by an iterator of its own."""

    def __init__(self, call: Any, responses: Any) -> None:
        self._call = call
        self._responses = responses

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses.__aiter__()  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        return bool(self._call.cancel())

    def cancelled(self) -> bool:
        return bool(self._call.cancelled())

    def done(self) -> bool:
        return bool(self._call.done())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._call.add_done_callback(callback)

    def time_remaining(self) -> float | None:
        return self._call.time_remaining()  # type: ignore[no-any-return]

    async def initial_metadata(self) -> Any:
        return await self._call.initial_metadata()

    async def trailing_metadata(self) -> Any:
        return await self._call.trailing_metadata()

    async def code(self) -> Any:
        return await self._call.code()

    async def details(self) -> Any:
        return await self._call.details()

    async def debug_error_string(self) -> Any:
        return await self._call.debug_error_string()

    async def wait_for_connection(self) -> None:
        await self._call.wait_for_connection()

    async def read(self) -> Any:
        return await anext(self.__aiter__(), grpc.aio.EOF)

    async def write(self, request: Any) -> None:
        await self._call.write(request)

    async def done_writing(self) -> None:
        await self._call.done_writing()
