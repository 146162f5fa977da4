"""One deployment of an application in local testing mode: an instance, a gate, and its calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from grpc import StatusCode

from pyserve.api.context import ReplicaContext, enter_local_replica
from pyserve.api.handles.calls import Metadata
from pyserve.api.handles.framing import read_request
from pyserve.config import read_settings
from pyserve.driver.local.calls import LocalCall, LocalReservation, joined
from pyserve.driver.local.gate import Gate
from pyserve.errors import BackPressure, RequestTimeout
from pyserve.references import References
from pyserve.replica.loading import (
    Loaded,
    check_first,
    close,
    construct,
    inference_doors,
    initialize,
    load,
    reconfigure,
    warm_up,
)
from pyserve.replica.plain.calls import status_of_plain
from pyserve.replica.plain.dispatcher import PlainDispatcher
from pyserve.request import Request
from pyserve.types import ApplicationName, DeploymentName, ReplicaId
from pyserve.wire.v1 import mesh_pb2

Value = TypeVar("Value")
# As many `def` methods of a deployment run at once, as in a replica's process.
_THREADS_MAX = 32


class LocalReplica:
    """The only replica of one deployment. Made by ``start``, used on one loop.

    Attributes:
        context: Who it is; what ``get_replica_context`` returns in its code.
        loaded: The class or function and its options.
        dispatcher: Runs its plain calls.
        inference: The doors of the model that its class declares; ``None``: it declares none.
    """

    def __init__(
        self,
        loaded: Loaded,
        context: ReplicaContext,
        dispatcher: PlainDispatcher,
        environment: contextvars.Context,
    ) -> None:
        self.context = context
        self.loaded = loaded
        self.dispatcher = dispatcher
        self.inference = inference_doors(loaded, dispatcher.methods, development=True)
        self._environment = environment
        self._loop = asyncio.get_running_loop()
        limit = loaded.options.ongoing_requests_limit()
        self._gate: Gate[LocalCall | _Waiter] = Gate(limit, loaded.options.queued_requests_limit)
        self._threads = CallThreads(min(limit, _THREADS_MAX), f"{context.deployment} ")
        self._tasks: dict[LocalCall, asyncio.Task[None]] = {}
        self._timers: dict[LocalCall, asyncio.TimerHandle] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @classmethod
    async def start(cls, spec: mesh_pb2.DeploymentSpec, references: References) -> LocalReplica:
        """Load the code, construct the instance and warm it up.

        Raises:
            LoadError: User code cannot be loaded, or raised.
        """
        context = ReplicaContext(
            app_name=ApplicationName(spec.application),
            deployment=DeploymentName(spec.name),
            replica_id=ReplicaId(f"{spec.name}#local"),
            servable_object=None,
        )
        loaded = load(spec, read_settings().servicer_functions)
        actors = tuple(each.name for each in loaded.options.deployment_actors)
        context = replace(context, deployment_actors=actors)
        environment = contextvars.Context()
        environment.run(enter_local_replica, context)
        instance = environment.run(construct, loaded)
        loop = asyncio.get_running_loop()
        await loop.create_task(initialize(loaded, instance), context=environment)
        context = replace(context, servable_object=instance)
        environment.run(enter_local_replica, context)
        options = loaded.options

        async def prepare() -> None:
            await reconfigure(instance, options.user_config, timeout_s=options.startup_timeout_s)
            await warm_up(instance)
            await check_first(instance, options.health_check_timeout_s)

        await loop.create_task(prepare(), context=environment.copy())
        dispatcher = PlainDispatcher(
            instance,
            spec.application,
            spec.name,
            rpcs=loaded.methods,
            services=loaded.services,
            batched=loaded.batched,
            references=references,
            development=True,
        )
        return cls(loaded, context, dispatcher, environment)

    async def reconfigure(self, config: object) -> None:
        """Let the instance take another ``user_config`` on.

        Raises:
            LoadError: It refuses.
        """
        timeout_s = self.loaded.options.startup_timeout_s
        await self.within(reconfigure(self.context.servable_object, config, timeout_s=timeout_s))

    async def within(self, step: Coroutine[Any, Any, Value]) -> Value:
        """Await ``step`` as code of this replica."""
        return await self._loop.create_task(step, context=self._environment.copy())

    def post(self, step: Callable[..., object], *args: object) -> bool:
        """Run ``step`` on the replica's loop, from any thread; ``False``: the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(step, *args)
        except RuntimeError:
            return False
        return True

    def models(self) -> Sequence[str]:
        """Return the multiplexed models; of one replica nobody needs to know them."""
        return ()

    # --- calls ------------------------------------------------------------------------------

    def accept(self, call: LocalCall) -> None:
        """Run a new call, or let it wait, or refuse it."""
        if self._closed:
            call.end(StatusCode.UNAVAILABLE, "it has been deleted or replaced")
            return
        if call.deadline is not None:
            left_s = call.deadline - time.monotonic()
            self._timers[call] = self._loop.call_later(left_s, self._expire, call)
        reservation, call.reservation = call.reservation, None
        if reservation is not None and reservation.take():
            self._run(call)
            return
        weight = self._weight(call)
        decision = self._gate.offer(call, weight=weight, priority=call.route.priority)
        if decision == "run":
            self._run(call)
        elif decision == "refuse":
            self._end(call, StatusCode.RESOURCE_EXHAUSTED, self._full_text())

    def cancel(self, call: LocalCall) -> None:
        """Stop a call whose caller does not wait any more."""
        self._end(call, StatusCode.CANCELLED, "the call was cancelled")

    def reserve(self, timeout_s: float | None) -> concurrent.futures.Future[LocalReservation]:
        """Take a place for a later call; from any thread."""
        waiter = _Waiter()
        if not self.post(self._reserve, waiter, timeout_s):
            _fail(waiter, RequestTimeout("local testing mode has been shut down"))
        return waiter

    def _reserve(self, waiter: _Waiter, timeout_s: float | None) -> None:
        decision = self._gate.offer(waiter)
        if decision == "run":
            self._give(waiter)
        elif decision == "refuse":
            _fail(waiter, BackPressure(self._full_text()))
        elif timeout_s is not None:
            self._loop.call_later(timeout_s, self._give_up, waiter)

    def _give(self, waiter: _Waiter) -> None:
        reservation = LocalReservation(self)
        if waiter.set_running_or_notify_cancel():
            waiter.set_result(reservation)
        else:
            reservation.release()

    def _give_up(self, waiter: _Waiter) -> None:
        if self._withdraw(waiter):
            text = f"{self.context.deployment}: no place became free in time"
            _fail(waiter, RequestTimeout(text))

    def give_back(self, weight: int = 1) -> None:
        """Free the places of a call, and let the next ones have them."""
        self._admit(self._gate.leave(weight))

    def _withdraw(self, waiting: LocalCall | _Waiter) -> bool:
        admitted = self._gate.withdraw(waiting)
        self._admit(admitted or [])
        return admitted is not None

    def _admit(self, admitted: Sequence[LocalCall | _Waiter]) -> None:
        for each in admitted:
            if isinstance(each, _Waiter):
                self._give(each)
            else:
                self._run(each)

    def _weight(self, call: LocalCall) -> int:
        method = self.dispatcher.methods.get(call.method)
        return 1 if method is None else method.options.weight

    def _full_text(self) -> str:
        options = self.loaded.options
        return (
            f"{options.ongoing_requests_limit()} calls run and {options.queued_requests_limit} "
            f"wait, as many as may"
        )

    def _run(self, call: LocalCall) -> None:
        self._idle.clear()
        threads = self._threads.of_call()
        task = self._tasks[call] = self._loop.create_task(
            self._answer(call, threads),
            name=f"pyserve {call.route.path}",
            context=self._environment.copy(),
        )
        # Not in the task itself: one that is cancelled before its first step never has one.
        task.add_done_callback(lambda _: self._on_answered(call, threads))

    def _on_answered(self, call: LocalCall, threads: ThreadsOfCall) -> None:
        del self._tasks[call]
        # Nothing else would end it for its caller. asyncio logs what the task has raised.
        if call.code() is None:
            self._end(call, StatusCode.INTERNAL, "the call ended without an answer: see the log")
        # A thread cannot be stopped: its place stays taken until it has come back.
        threads.when_done(lambda: self.post(self._settle, self._weight(call)))

    async def _answer(self, call: LocalCall, threads: ThreadsOfCall) -> None:
        _, header, _ = read_request(call.message)
        method = call.method
        request = Request(
            request_id=header.request_id,
            multiplexed_model_id=call.route.model_id,
            deadline=call.deadline,
            application=self.context.app_name,
            deployment=self.context.deployment,
            method=method,
        )
        call.on_stop = request.cancel
        given: Any = {
            "subtype": call.route.codec,
            "framed": True,
            "request": request,
            "executor": threads,
        }
        try:
            if call.route.streaming:
                await self._send_all(call, self.dispatcher.stream(method, call.message, **given))
                self._end(call, StatusCode.OK)
            else:
                parts, _ = await self.dispatcher.unary(method, call.message, **given)
                self._end(call, StatusCode.OK, answer=joined(parts))
        except asyncio.CancelledError:
            # Our code ends the call before it cancels the task. Else user code cancelled itself.
            request.cancel()
            self._end(call, StatusCode.CANCELLED, "the method was cancelled")
        except BaseException as error:
            status = status_of_plain(error, _Failed(call), development=True)
            self._end(call, status.code, status.details, tuple(status.trailing_metadata))
            if (
                isinstance(error, KeyboardInterrupt | SystemExit)
                and threading.current_thread() is threading.main_thread()
            ):
                # It ends the process. On another thread it would only end every other deployment.
                raise
        finally:
            request.end()

    async def _send_all(self, call: LocalCall, messages: AsyncIterator[Any]) -> None:
        room = asyncio.Event()
        call.on_room = room.set
        try:
            async for parts in messages:
                call.send(joined(parts))
                # The first one leaves before the generator works on the second.
                await asyncio.sleep(0)
                while not call.has_room:
                    room.clear()
                    await room.wait()
        finally:
            await messages.aclose()  # type: ignore[attr-defined]  # an async generator

    def _settle(self, weight: int) -> None:
        self.give_back(weight)
        if not self._tasks and self._gate.running == 0:
            self._idle.set()

    def _expire(self, call: LocalCall) -> None:
        self._end(call, StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")

    def _end(
        self,
        call: LocalCall,
        code: StatusCode,
        details: str = "",
        metadata: Metadata = (),
        *,
        answer: bytes | None = None,
    ) -> None:
        timer = self._timers.pop(call, None)
        if timer is not None:
            timer.cancel()
        call.end(code, details, metadata, answer=answer)
        if code in _STOPPING:
            self._withdraw(call)
            task = self._tasks.get(call)
            if task is not None and task is not asyncio.current_task():
                if call.on_stop is not None:
                    call.on_stop()
                task.cancel()

    # --- the end ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Refuse new calls, let those that run end within the grace, then let the instance go."""
        self._closed = True
        for left in self._gate.close():
            if isinstance(left, LocalCall):
                self._end(left, StatusCode.UNAVAILABLE, "it has been deleted or replaced")
            else:
                _fail(left, RequestTimeout("it has been deleted or replaced"))
        ends_at = self._loop.time() + self.loaded.options.graceful_shutdown_timeout_s
        try:
            async with asyncio.timeout_at(ends_at):
                await self._idle.wait()
        except TimeoutError:
            for call in tuple(self._tasks):
                self._end(call, StatusCode.UNAVAILABLE, "its time to end was over")
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._threads.close()
        await self.within(close(self.context.servable_object, ends_at))


_STOPPING = frozenset({StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED, StatusCode.UNAVAILABLE})


class _Waiter(concurrent.futures.Future[LocalReservation]):
    """A caller that waits for a place and has no call yet."""


def _fail(waiter: _Waiter, error: Exception) -> None:
    """Fail a waiter with ``error``, unless it was cancelled."""
    if waiter.set_running_or_notify_cancel():
        waiter.set_exception(error)


class _Failed:
    """What ``status_of_plain`` asks about a call that has failed."""

    class _Call:
        framed = True

    class _Method:
        def __init__(self, path: str) -> None:
            self.path = path

    call = _Call()
    cancel_reason = None

    def __init__(self, call: LocalCall) -> None:
        self.method = self._Method(call.route.path)
        self._deadline = call.deadline

    def time_remaining(self) -> float | None:
        """Return the seconds until the call's deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())


# Threads of `def` methods, which know when the code of one call has really ended.


class CallThreads:
    """A bounded pool.

    Args:
        threads_max: How many run at once.
        name: What names of threads begin with.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=name)

    def of_call(self) -> ThreadsOfCall:
        """Return the pool as one call sees it."""
        return ThreadsOfCall(self._pool)

    def close(self) -> None:
        """Let threads end; those that still run end with their work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class ThreadsOfCall(Executor):
    """Remembers the last step that a call has given to the pool: they run one by one."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._last: Future[Any] | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``function`` on a thread of the pool."""
        self._last = self._pool.submit(function, *args, **kwargs)
        return self._last

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when no code of the call runs any more, at once if none does."""
        if self._last is None:
            callback()
        else:
            self._last.add_done_callback(lambda _: callback())
