"""One outgoing call: how it starts, waits for its inputs, ends, is cancelled and waited for.

A call belongs to the loop that runs where ``remote`` was called, or to the process's own loop for
calls (``CallsLoop``) when none runs there. Its events arrive on that loop; every other loop and
thread may wait for it and cancel it. Waiting on the call's own loop, as most calls do, needs no
lock and no task.
"""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.api.handles.calls import Metadata, Pinned, Route
from pyserve.api.handles.failures import FAILURE_KEY, is_abort, rebuild, rebuild_abort
from pyserve.errors import (
    Abort,
    BackPressure,
    DeploymentUnavailable,
    PyserveError,
    ReferenceLost,
    RemoteError,
    RequestCancelled,
    RequestTimeout,
    SerializationError,
    UsageError,
    WrongMoment,
)
from pyserve.observe.delays import PROCESS_DELAYS, CallDelay, wall_clock_from

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Caller, Message, Route, WireCall
    from pyserve.api.handles.plan import Plan
    from pyserve.request import Request

Wake = Callable[[], object]
running_loop: Callable[[], asyncio.AbstractEventLoop | None] = asyncio._get_running_loop  # noqa: SLF001
"""Returns the loop of this thread, ``None`` without one, at less cost than an exception."""


class OutgoingCall:
    """The common part of calls with one answer and calls with a stream of answers.

    Fields that most calls never set are class attributes, which makes a call cheap.

    Attributes:
        settled: It has ended, or was cancelled.
        error: Why it failed; valid once it is settled.
        is_cancel_requested: Somebody has called ``cancel`` before the end.
        wire: The call that was sent; ``None`` before.
        inputs: Keeps values that stay elsewhere alive until the call has ended.
        root: The request from outside the mesh after whose end held answers are not needed;
            ``None``: they live as long as they are referred to.
        route: What differs from other calls of its plan; ``None``: nothing.
    """

    settled = False
    error: BaseException | None = None
    is_cancel_requested = False
    wire: WireCall | None = None
    _task: asyncio.Task[None] | None = None
    _waiter: asyncio.Future[None] | None = None
    _watchers: deque[Wake] | None = None
    inputs: object = None
    begun_at = 0.0  # of ``time.monotonic``, where it is of interest afterwards
    is_watched = False  # its request is traced, or was asked for
    root: Request | None = None
    route: Route | None = None  # instead of the plan's

    def __init__(
        self, plan: Plan, request_id: str, caller: Caller, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.plan = plan
        self.request_id = request_id
        self.caller = caller
        self.loop = loop

    # --- start ----------------------------------------------------------------------------

    def begin(self, message: Message, timeout_s: float | None) -> None:
        """Send the request; on the call's loop."""
        route = self.route or self.plan.route
        self.wire = self.caller.start(route, message, timeout_s, self, self.plan.place)

    def begin_soon(self, message: Message, timeout_s: float | None) -> None:
        """Send the request from any thread."""
        self.loop.call_soon_threadsafe(self._begin_or_fail, message, timeout_s)

    def _begin_or_fail(self, message: Message, timeout_s: float | None) -> None:
        if not self.settled:
            try:
                self.begin(message, timeout_s)
            except Exception as error:  # Whoever waits for the call gets it.
                self.settle(error)

    def begin_after(self, prepare: Callable[[], Any], deadline: float | None) -> None:
        """Send the request when its inputs are there; on any thread.

        Args:
            prepare: A coroutine function that waits for the inputs and returns the message.
            deadline: Of the call, in seconds of ``time.monotonic``; ``None``: none.
        """
        if running_loop() is self.loop:
            self._spawn(prepare, deadline)
        else:
            self.loop.call_soon_threadsafe(self._spawn, prepare, deadline)

    def _spawn(self, prepare: Callable[[], Any], deadline: float | None) -> None:
        if not self.settled:
            # The task is held by this call, and this call by the task.
            self._task = self.loop.create_task(
                self._prepare(prepare, deadline), name="pyserve inputs of a call"
            )

    async def _prepare(self, prepare: Callable[[], Any], deadline: float | None) -> None:
        try:
            timeout_s = None if deadline is None else deadline - time.monotonic()
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    message = await prepare()
            except TimeoutError:
                if not limit.expired():
                    raise
                text = f"{self.plan.name}: the deadline has passed while its inputs were made"
                raise RequestTimeout(text) from None
            if not self.settled:
                left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                self.begin(message, left_s)
        except asyncio.CancelledError:
            self.settle(
                RequestCancelled(f"{self.plan.name}: cancelled before its inputs were there")
            )
        except Exception as error:  # Of an input, or of its codec: the waiters get it.
            self.settle(error)
        finally:
            self._task = None

    # --- end ------------------------------------------------------------------------------

    def on_event(self, kind: int, _subject: object, payload: object) -> None:
        """Take one event of the ring."""
        raise NotImplementedError

    def status_error(self) -> Exception:
        """Return the exception for the status that the call has ended with."""
        wire = self.wire
        assert wire is not None
        number = wire.code()
        try:
            error = error_of(self.plan.route, number, wire.details(), wire.trailing_metadata())
            # An error with a traceback comes from a further process and is already complete.
            if isinstance(error, BackPressure) and not error.remote_traceback:
                error.status_code, error.retry_after_s = self.caller.backpressure(wire)
            return error
        except Exception as error:  # Rebuilding it runs code of the user's; somebody waits for it.
            return error

    def abandon(self) -> None:
        """The loop closes: only waiters on other threads and loops can still be notified."""
        wire, self.wire = self.wire, None
        if wire is not None:
            self.caller.cancel(wire, self.loop)
        self.settle(
            RequestCancelled(
                f"{self.plan.name}: the event loop on which the call was made has been closed"
            )
        )

    def settle(self, error: BaseException | None) -> None:
        """Record the end and wake the waiters; on the call's loop. Only the first end counts."""
        if self.settled:
            return
        self.error = error
        self.settled = True
        if self.begun_at:
            self.keep_delay(error)
        self.inputs = None
        place = self.plan.place
        if self.wire is None and place is not None and not isinstance(place, Pinned):
            # The call ended before it used its place, and its response may be kept for long.
            place.release()
        self.wake()

    def keep_delay(self, error: BaseException | None) -> None:
        """Keep how long the call has taken, if it was slow or has failed."""
        now = time.monotonic()
        # A stream that its reader leaves has not failed.
        has_failed = error is not None and not self.is_cancel_requested
        if PROCESS_DELAYS.keeps_call(now - self.begun_at) or has_failed or self.is_watched:
            wall = wall_clock_from(now)
            delay = CallDelay(
                name=self.plan.name,
                request_id=self.request_id,
                begun_at=wall(self.begun_at),
                ended_at=wall(now),
                error="" if error is None else type(error).__qualname__,
            )
            PROCESS_DELAYS.add_call(delay)

    def wake(self) -> None:
        """Wake the waiters, on this loop and elsewhere."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        if self._watchers is not None:
            self.wake_watchers()

    def cancel(self) -> None:
        """Cancel the call; from any thread. No effect if it has ended."""
        if self.settled:
            return
        self.is_cancel_requested = True
        if running_loop() is self.loop:
            self._cancel_here()
            return
        # A loop that has been closed has settled the call.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._cancel_here)

    def _cancel_here(self) -> None:
        if self.settled:
            return
        task, wire = self._task, self.wire
        if wire is not None:
            self.caller.cancel(wire, self.loop)
        self.settle(RequestCancelled(f"{self.plan.name}: the call was cancelled"))
        if task is not None:
            task.cancel()

    # --- waiting --------------------------------------------------------------------------

    def wait_here(self) -> Generator[Any, None, None]:
        """Wait for the next wake-up on the running loop, whichever that is.

        Cancelling the wait cancels the call, if nobody else waits for it.
        """
        loop = get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if loop is self.loop and self._waiter is None:
            self._waiter = future
            wake = None
        else:
            wake = _Waker(loop, future)
            self.watch(wake)
        try:
            yield from future
        except asyncio.CancelledError:
            self._give_up(future, wake)
            raise

    async def wait_quietly(self) -> None:
        """Wait for the next wake-up; cancelling the wait leaves the call alone."""
        loop = get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        wake = _Waker(loop, future)
        self.watch(wake)
        try:
            await future
        finally:
            self.unwatch(wake)

    def _give_up(self, future: asyncio.Future[None], wake: Wake | None) -> None:
        if wake is None:
            if self._waiter is future:
                self._waiter = None
        else:
            self.unwatch(wake)
        if self._waiter is None and not self._watchers:
            self.cancel()

    def watch(self, wake: Wake) -> None:
        """Call ``wake`` once at the next wake-up; at once when the call has ended. Any thread."""
        # Both are atomic: two threads may be the first watcher, and the end may come between.
        watchers: deque[Wake] = self.__dict__.setdefault("_watchers", deque())
        watchers.append(wake)
        if self.is_ready():
            self.wake_watchers()

    def unwatch(self, wake: Wake) -> None:
        """Forget ``wake``; without effect when it was called."""
        with suppress(ValueError):
            (self._watchers or deque()).remove(wake)

    def is_ready(self) -> bool:
        """Tell whether there is something to wake up for."""
        return self.settled

    def wake_watchers(self) -> None:
        """Wake those who wait elsewhere; any thread."""
        watchers = self._watchers
        while watchers:
            try:
                watcher = watchers.popleft()
            except IndexError:  # Another thread has taken the last one.
                return
            watcher()

    def wait_blocking(self, timeout_s: float | None) -> bool:
        """Block this thread until the next wake-up; ``False``: it did not come in time.

        A signal interrupts the wait at once, as the lock that it waits for is the interpreter's.

        Raises:
            WrongMoment: A loop runs in this thread, which must not be blocked.
        """
        check_may_block()
        lock = threading.Lock()
        lock.acquire()
        wake = _Release(lock)
        self.watch(wake)
        try:
            return lock.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))
        finally:
            self.unwatch(wake)


class _Waker:
    """Wakes a future of some loop from any thread."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        self._loop = loop
        self._future = future

    def __call__(self) -> None:
        if running_loop() is self._loop:
            _finish(self._future)
            return
        # When that loop has been closed, nobody waits there any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_finish, self._future)


class _Release:
    """Lets a blocked thread go on; harmless when it has given up."""

    __slots__ = ("_lock",)

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __call__(self) -> None:
        self._lock.release()


def check_may_block() -> None:
    """Refuse to block a running loop.

    Raises:
        WrongMoment: A loop runs in this thread.
    """
    if running_loop() is not None:
        raise WrongMoment(
            "this would block the running event loop: write `await response` (or `async for` "
            "over a stream) here, and keep .result() and `for` for code without a loop"
        )


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# From the status of a call to the exception that its caller gets: the one table of handles.

_CODE_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_ERROR_OF_CODE: dict[grpc.StatusCode, type[PyserveError]] = {
    grpc.StatusCode.CANCELLED: RequestCancelled,
    grpc.StatusCode.DEADLINE_EXCEEDED: RequestTimeout,
    grpc.StatusCode.RESOURCE_EXHAUSTED: BackPressure,
    grpc.StatusCode.UNAVAILABLE: DeploymentUnavailable,
    grpc.StatusCode.DATA_LOSS: ReferenceLost,
    grpc.StatusCode.INVALID_ARGUMENT: UsageError,
    # User code reports missing methods itself; the native half refuses codecs.
    grpc.StatusCode.UNIMPLEMENTED: SerializationError,
}


def error_of(
    route: Route, number: int | None, details: str | None, trailers: Metadata | None
) -> Exception:
    """Return what awaiting a call raises that ended with another status than OK.

    A trailer with a failure comes from user code; without it the mesh itself has said no.
    """
    code = _CODE_BY_NUMBER.get(number or 0, grpc.StatusCode.UNKNOWN)
    text = details or ""
    failure = next((value for key, value in trailers or () if key == FAILURE_KEY), None)
    if isinstance(failure, bytes):
        if is_abort(failure):
            return rebuild_abort(failure, Abort(code, text, _of_user(trailers)))
        return rebuild(failure)
    where = f"{route.key} {route.path.rpartition('/')[2]}"
    kind = _ERROR_OF_CODE.get(code)
    if kind is not None:
        return kind(f"{where}: {text or _DEFAULT_TEXTS.get(code, code.name)}")
    if code is grpc.StatusCode.INTERNAL:
        return RemoteError("unknown", f"{where}: {text}")
    # No status of the mesh: a method has chosen it, e.g. through its context.
    return Abort(code, text, _of_user(trailers))


_DEFAULT_TEXTS = {
    grpc.StatusCode.CANCELLED: "the call was cancelled",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the deadline has passed",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "no replica has room",
    grpc.StatusCode.UNAVAILABLE: "no replica is there",
}


def _of_user(trailers: Metadata | None) -> Metadata:
    return tuple(
        (key, value)
        for key, value in trailers or ()
        if key != FAILURE_KEY and not key.startswith(("pyserve-", "grpc-"))
    )
