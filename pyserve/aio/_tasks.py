"""Runs calls of ``async def`` handlers, the hot path of the server, and of those that only queue.

Each factory binds what its calls share into one closure, so that a call makes one coroutine,
one task and one context, and looks nothing up. A handler that only queues its calls, as a batched
one does, needs no task for each.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from pyserve.aio._context import ServicerContext
from pyserve.aio._handlers import CallKit, Messages, Method, is_coroutine_function
from pyserve.aio._outcome import fail, finish_stream, finish_unary, release
from pyserve.aio._streams import MessageStream, RequestIterator
from pyserve.bridge import CallStarter, rust
from pyserve.request import CURRENT, Source

if TYPE_CHECKING:
    from pyserve.aio._http import HttpCall


AsyncRunner = Callable[[ServicerContext, int, bytes | None], Coroutine[Any, Any, None]]
# Messages a generator may yield without a turn of the loop in between. A generator that never
# waits would otherwise hold the loop until its 64 KiB are full. Arbitrary, about 0.1 ms.
_MESSAGES_PER_TURN_MAX = 64


def run_unary_unary(method: Method, kit: CallKit) -> AsyncRunner:
    """Return the coroutine function that runs one unary call."""
    function = method.function
    deserialize = method.deserialize
    unreadable = method.unreadable
    serialize = method.serialize
    serialize_checked = method.serialize_checked
    response_type = method.response_type
    receivers = kit.receivers
    flush = kit.flush
    set_current = CURRENT.set

    async def run(context: ServicerContext, token: int, message: bytes | None) -> None:
        set_current(context)
        try:
            try:  # As Method.read, which would cost every call a call.
                request = deserialize(message)  # type: ignore[arg-type]
            except Exception as error:
                raise unreadable(error) from error
            response = await function(request, context)
            if context.plain:
                known = type(response) is response_type
                raw = serialize(response) if known else serialize_checked(response)
                # Before it counts as finished: a payload that the ring refuses is a failure.
                must_flush = context.call.reply(raw)
                context.finished = True
                if must_flush:
                    flush()
            elif isinstance(response, Messages):
                await send_messages(context, response.items)
            else:
                finish_unary(context, response)
        except BaseException as error:
            fail(context, error)
        finally:
            receivers.pop(token, None)
            context.task = None  # See ServicerContext.
            if not context.plain or context.request_made is not None:
                release(context)

    return run


def run_stream_unary(method: Method, kit: CallKit) -> AsyncRunner:
    """Return the coroutine function that runs one call with streamed requests."""
    function = method.function
    receivers = kit.receivers

    async def run(context: ServicerContext, token: int, message: bytes | None) -> None:
        CURRENT.set(context)
        try:
            stream = open_stream(context, message)
            response = await function(RequestIterator(context, stream), context)
            finish_unary(context, response)
        except BaseException as error:
            fail(context, error)
        finally:
            receivers.pop(token, None)
            context.task = None  # See ServicerContext.
            release(context)

    return run


def run_response_stream(method: Method, kit: CallKit) -> AsyncRunner:
    """Return the coroutine function that runs one call with streamed responses."""
    function = method.function
    receivers = kit.receivers
    reader_writer = is_coroutine_function(function)
    request_streaming = method.request_streaming
    read = method.read

    async def run(context: ServicerContext, token: int, message: bytes | None) -> None:
        CURRENT.set(context)
        try:
            request: Any
            if request_streaming:
                request = RequestIterator(context, open_stream(context, message))
            else:
                context.stream = MessageStream(context.call, kit.flush, kit.loop)
                context.stream.half_closed = True
                request = read(message)  # type: ignore[arg-type]
            if reader_writer:
                await function(request, context)
            else:
                await _send_all(context, function(request, context))
            finish_stream(context)
        except BaseException as error:
            fail(context, error)
        finally:
            receivers.pop(token, None)
            context.task = None  # See ServicerContext.
            release(context)

    return run


def open_stream(context: ServicerContext, message: bytes | None) -> MessageStream:
    """Return the context's stream; made now unless an interceptor's wait has made it already.

    ``message`` is the whole request when the call did not arrive as a stream.
    """
    stream = context.stream
    if not isinstance(stream, MessageStream):
        stream = MessageStream(context.call, context.kit.flush, context.kit.loop)
        context.stream = stream
        if message is not None:
            stream.messages.append(message)
            stream.half_closed = True
    return stream


async def send_messages(context: ServicerContext, items: Any) -> None:
    """Send several messages of a call whose handler was to return one, then the status."""
    context.stream = MessageStream(context.call, context.kit.flush, context.kit.loop)
    context.stream.half_closed = True
    is_async = isinstance(items, AsyncIterator)
    await _send_all(context, items if is_async else steps_on_threads(context, items))
    finish_stream(context)


async def _send_all(context: ServicerContext, responses: Any) -> None:
    serialize = context.method.serialize_checked
    queue_message = context.queue_message
    writable = context.call.writable
    stream = context.stream
    assert isinstance(stream, MessageStream)
    count = 0
    try:
        async for response in responses:
            if not context.plain:
                context.check_running()
            queue_message(serialize(response))
            count += 1
            if not writable():
                await stream.wait_writable()
            elif count == 1 or count % _MESSAGES_PER_TURN_MAX == 0:
                # The first one leaves before the handler works on the second.
                await _one_turn()
    finally:
        # The handler's own cleanup belongs to the call, not to the garbage collector.
        close = getattr(responses, "aclose", None)
        if close is not None:
            await close()


class _one_turn:  # noqa: N801 (stands for a function, like asyncio.sleep(0))
    """Suspends its task for one turn of the loop."""

    def __await__(self) -> Any:
        yield


def starter_of(runner: AsyncRunner, method: Method, kit: CallKit) -> CallStarter:
    """Return what starts calls of ``runner`` as tasks."""
    receivers = kit.receivers
    spawn = kit.spawn
    request_streaming = method.request_streaming

    def start(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        context = ServicerContext(call, method, kit)
        receivers[token] = context
        if request_streaming:
            # Now, because messages may follow in the same batch of events.
            open_stream(context, message)
        task = spawn(runner(context, token, message))
        if not task.done():  # One that began at once may have ended.
            context.task = task

    return start


# Runs `def` functions on the server's pool, for tasks of the loop that wait for them.
#
# A thread cannot be cancelled: the task that waits for one ends after it, so that the request keeps
# its place at the gate as long as it keeps a thread.

_END = object()


async def on_thread(
    call: HttpCall | ServicerContext,
    context: contextvars.Context,
    function: Callable[..., Any],
    *args: Any,
) -> Any:
    """Call ``function`` on a thread with the variables of ``context``.

    Cancelled while it waits for a thread, it is not called. Cancelled while it runs, its end
    is waited for.

    Raises:
        Exception: Whatever ``function`` raises; RuntimeError in place of StopIteration.
    """
    work = call.kit.executor().submit(_call, context, function, args)
    future = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not work.cancel():
            await _finished(future)
        raise


async def steps_on_threads(
    call: HttpCall | ServicerContext, items: Iterator[Any]
) -> AsyncGenerator[Any, None]:
    """Make the steps of a plain iterator on threads, one after the other; close it there too."""
    context = contextvars.copy_context()
    try:
        while (item := await on_thread(call, context, next, items, _END)) is not _END:
            yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            await on_thread(call, context, close)


def _call(context: contextvars.Context, function: Callable[..., Any], args: Any) -> Any:
    try:
        return context.run(function, *args)
    except StopIteration as error:  # No future can carry it.
        raise RuntimeError("a handler raised StopIteration") from error


async def _finished(future: asyncio.Future[Any]) -> None:
    """Wait for the end of a thread's work, with any outcome and even if cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # So that it is not reported as never retrieved.


class DeferredUnary:
    """A handler of one request and one response that is answered later, from elsewhere.

    Args:
        queue: Gets the request, the context, the source of the call's ``Request``, and an object
            that takes the result as a future does. If it raises, the call fails with that error.
    """

    def __init__(self, queue: Callable[[Any, Any, Source | None, Any], None]) -> None:
        self.queue = queue

    async def __call__(self, request: object, context: object) -> object:
        """Answer a call that needs a task anyway, because of interceptors or a time limit."""
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.queue(request, context, CURRENT.get(), result)
        return await result


class DeferredReply:
    """The single response of a call, with those methods of a future that are needed to answer it.

    It is used on the loop only. Unlike with a future, the result is sent before ``set_result``
    returns. An exception ends the call and is not kept.
    """

    __slots__ = ("_callbacks", "_context", "_is_done", "_token")

    def __init__(self, context: ServicerContext, token: int) -> None:
        self._context = context
        self._token = token
        self._is_done = False
        self._callbacks: list[Callable[[Any], object]] | None = None

    def done(self) -> bool:
        """Return whether it was answered, or its client has gone."""
        return self._is_done

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call ``callback`` with this in the loop's next turn after it is done."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def set_result(self, response: Any, /) -> None:
        """Send ``response``; what cannot be sent fails the call."""
        context = self._context
        method = context.method
        try:
            if context.plain:
                known = type(response) is method.response_type
                raw = method.serialize(response) if known else method.serialize_checked(response)
                # Before the call counts as finished: a payload that the ring rejects fails it.
                must_flush = context.call.reply(raw)
                context.finished = True
                if must_flush:
                    context.kit.flush()
            else:
                finish_unary(context, response)
        except BaseException as error:
            self.set_exception(error)
        else:
            self._end()

    def set_exception(self, error: BaseException, /) -> None:
        """End the call as a handler that raised ``error`` would."""
        # The answering code serves many calls, so it does not run in this call's context.
        variable = CURRENT.set(self._context)
        try:
            fail(self._context, error)
        finally:
            CURRENT.reset(variable)
            self._end()

    def cancel(self) -> bool:
        """End the call as a handler that was cancelled; ``False`` when it is done already."""
        if self._is_done:
            return False
        self.set_exception(asyncio.CancelledError())
        return True

    def _end(self) -> None:
        self._is_done = True
        context = self._context
        context.kit.receivers.pop(self._token, None)
        context.on_cancelled = None  # It holds this, a cycle that only the collector would free.
        if self._callbacks is not None:
            for callback in self._callbacks:
                context.kit.loop.call_soon(callback, self)
        if not context.plain or context.request_made is not None:
            variable = CURRENT.set(context)
            release(context)
            CURRENT.reset(variable)


def starter_of_deferred(function: DeferredUnary, method: Method, kit: CallKit) -> CallStarter:
    """Return what starts the calls of ``function``, the handler of ``method``."""
    receivers = kit.receivers
    queue = function.queue
    deserialize = method.deserialize

    def start(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        context = ServicerContext(call, method, kit)
        receivers[token] = context
        reply = DeferredReply(context, token)
        context.on_cancelled = reply.cancel
        try:
            try:  # As Method.read, which would cost every call a call.
                request = deserialize(message)  # type: ignore[arg-type]
            except Exception as error:
                raise method.unreadable(error) from error
            queue(request, context, context, reply)
        except BaseException as error:
            reply.set_exception(error)

    return start
