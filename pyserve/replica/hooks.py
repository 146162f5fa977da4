"""Calls methods of the user's for the replica, with timeouts: health, routing stats.

The loop of user code and the user's ``check_health`` are asked at intervals, and failures are
reported. A replica without that hook is healthy as long as its loop responds. The controller
decides after how many failures a replica is replaced.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from pyserve.bridge import LoopProbe
from pyserve.config import DeploymentOptions, RequestRouterConfig
from pyserve.interrupts import raise_ctrl_c
from pyserve.observe.failures import text_of
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.metrics.families import Tally

Value = TypeVar("Value")
Answer_co = TypeVar("Answer_co", covariant=True)


class HookFailed(Exception):
    """The method gave no answer. The text says why, and reads on after the method's name."""


class Hook(Generic[Value]):
    """One such method, asked again and again.

    A coroutine function runs in the loop of user code. Anything else may block, so it has a thread
    of its own, which the end of the process does not wait for; one that hangs has one thread,
    however often it is asked.

    Args:
        method: Takes no arguments; plain or async.
        read: Makes the value of what it returned, in the same place, because user code must not
            change it meanwhile. May raise ``ValueError``.
        timeout_s: How long it may take.
        user_loop: Where a coroutine function runs; ``None``: in the loop that asks.
    """

    def __init__(
        self,
        method: Callable[[], object],
        read: Callable[[object], Value],
        *,
        timeout_s: float,
        user_loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._method = method
        self._read = read
        self.timeout_s = timeout_s
        self._user_loop = user_loop
        self._asked: concurrent.futures.Future[Value] | None = None

    async def ask(self) -> Value:
        """Return what the method says now; cancelling this cancels a method that is a coroutine.

        Raises:
            HookFailed: It raised, was late, or has not ended since it was late.
        """
        if self._asked is not None and not self._asked.done():
            raise HookFailed("has not ended the call before")
        self._asked = self._begin(self._user_loop or asyncio.get_running_loop())
        answer = asyncio.wrap_future(self._asked)
        try:
            await asyncio.wait([answer], timeout=self.timeout_s)
            if not answer.done():
                raise HookFailed(f"took longer than {self.timeout_s:g} s")
            if answer.cancelled():
                raise HookFailed("was cancelled")
            return answer.result()
        finally:
            answer.cancel()  # Ends a coroutine that goes on; a thread has to end by itself.

    def _begin(self, loop: asyncio.AbstractEventLoop) -> concurrent.futures.Future[Value]:
        if inspect.iscoroutinefunction(self._method):
            return asyncio.run_coroutine_threadsafe(self._awaited(self._method()), loop)

        def ask() -> Value:
            result = self._method()
            if inspect.isawaitable(result):
                return asyncio.run_coroutine_threadsafe(self._awaited(result), loop).result()
            return self._value_of(result)

        return _in_thread(ask)

    async def _awaited(self, result: Awaitable[object]) -> Value:
        try:
            found = await result
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            raise_ctrl_c(error)
            raise _failed(error) from error
        return self._value_of(found)

    def _value_of(self, result: object) -> Value:
        try:
            return self._read(result)
        except ValueError as error:
            raise HookFailed(f"cannot be used: {error}") from error


class Question(Protocol[Answer_co]):
    """A question that can be asked repeatedly."""

    async def ask(self) -> Answer_co:
        """Return the answer; see ``Hook.ask``."""


class Questioner(Generic[Value]):
    """Asks while its context is entered; for a class without the method it does nothing.

    Subclasses decide when to ask, and what to do with the answers.

    Args:
        hook: What is asked.
    """

    def __init__(self, hook: Question[Value] | None) -> None:
        self._hook = hook
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._hook is not None:
            self._task = asyncio.create_task(self._ask_forever(self._hook))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _ask_forever(self, hook: Question[Value]) -> None:
        raise NotImplementedError


def _failed(error: BaseException) -> HookFailed:
    return HookFailed("raised " + ": ".join(filter(None, (type(error).__name__, text_of(error)))))


def _in_thread(step: Callable[[], Value]) -> concurrent.futures.Future[Value]:
    """Run ``step`` in a thread that the end of the process does not wait for."""
    outcome: concurrent.futures.Future[Value] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(step))
        except HookFailed as error:
            outcome.set_exception(error)
        except BaseException as error:
            # Futures of asyncio cannot hold what ends a task, an iterator or the process.
            outcome.set_exception(_failed(error))

    threading.Thread(target=run, name="pyserve-hook", daemon=True).start()
    return outcome


# Asks the user's `record_routing_stats` at intervals and reports changed results.
#
# The user's routing policies see the results. A failure is only logged: routers keep the last good
# result.

_LOGGER = logging.getLogger(__name__)
# All replicas' facts travel to all routers whenever one of them changes.
FACTS_BYTES_MAX = 16 * 1024


def facts_json(value: object) -> str:
    """Return a hook's result as it is sent: a JSON object, ``""`` for an empty one.

    Raises:
        ValueError: It is no mapping, JSON cannot hold it, or it is larger than 16 KiB.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"it returned {type(value).__name__} instead of a dict")
    try:
        text = json.dumps(dict(value), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it returned what JSON cannot hold: {error}") from error
    if len(text) > FACTS_BYTES_MAX:
        raise ValueError(f"it returned {len(text)} bytes of JSON; at most {FACTS_BYTES_MAX} travel")
    return text if value else ""


class StatsReporter(Questioner[str]):
    """Asks while its context is entered, at once and then after each period.

    Args:
        instance: The user's object.
        config: ``request_routing_stats_period_s`` and ``request_routing_stats_timeout_s``.
        report: Called with the JSON of every answer that differs from the one before.
        user_loop: Where a method that is a coroutine function runs; ``None``: in the running loop.
    """

    def __init__(
        self,
        instance: object,
        config: RequestRouterConfig,
        report: Callable[[str], Awaitable[None]],
        *,
        user_loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        method: Callable[[], object] | None = getattr(instance, "record_routing_stats", None)
        timeout_s = config.request_routing_stats_timeout_s
        super().__init__(
            method and Hook(method, facts_json, timeout_s=timeout_s, user_loop=user_loop)
        )
        self._period_s = config.request_routing_stats_period_s
        self._report = report
        self._lines = LogRateLimit()

    async def _ask_forever(self, hook: Question[str]) -> None:
        said = ""
        while True:
            try:
                now = await hook.ask()
            except HookFailed as error:
                self._complain(error)
            else:
                if now != said:
                    await self._report(now)
                said = now
            await asyncio.sleep(self._period_s)

    def _complain(self, error: HookFailed) -> None:
        # However often the method is asked.
        if self._lines.allows():
            _LOGGER.warning("record_routing_stats %s; routers keep what it said before", error)


class Report(Protocol):
    """Takes the outcome of one check."""

    def __call__(self, *, healthy: bool, reason: str) -> Awaitable[None]:
        """Send it to the controller."""


class HealthMeasures:
    """The results of checks.

    Attributes:
        times: How long they took.
        passed, failed: How many did.
    """

    def __init__(self) -> None:
        self.times = Tally()
        self.passed = self.failed = 0

    def add(self, duration_s: float, *, is_healthy: bool) -> None:
        """Count one."""
        self.times.add(duration_s)
        self.passed += is_healthy
        self.failed += not is_healthy


class HealthMonitor(Questioner[None]):
    """Checks while its context is entered.

    Args:
        instance: The user's object.
        options: ``health_check_period_s`` and ``health_check_timeout_s``.
        report: Called after every check that failed, and after the first that succeeds again.
        user_loop: Where a hook that is a coroutine function runs; ``None``: in the running loop.
        probe: Of the loop that calls run in; ``None``: it is not looked at.
        measures: Counts the checks.
    """

    def __init__(
        self,
        instance: object,
        options: DeploymentOptions,
        report: Report,
        *,
        user_loop: asyncio.AbstractEventLoop | None = None,
        probe: LoopProbe | None = None,
        measures: HealthMeasures | None = None,
    ) -> None:
        method: Callable[[], object] | None = getattr(instance, "check_health", None)
        timeout_s = options.health_check_timeout_s
        self._own = method and Hook(method, _nothing, timeout_s=timeout_s, user_loop=user_loop)
        self._loop_first = None if probe is None else _LoopThenHook(probe, self._own, timeout_s)
        super().__init__(self._loop_first or self._own)
        self._period_s = options.health_check_period_s
        self._has_changed = asyncio.Event()
        self._report = report
        self._measures = measures or HealthMeasures()

    def follow(self, options: DeploymentOptions) -> None:
        """Follow new options, and restart the current pause. Call it in the loop that checks."""
        for each in (self._own, self._loop_first):
            if each is not None:
                each.timeout_s = options.health_check_timeout_s
        self._period_s = options.health_check_period_s
        self._has_changed.set()

    async def _pause(self) -> None:
        while True:
            self._has_changed.clear()
            try:
                async with asyncio.timeout(self._period_s):
                    await self._has_changed.wait()
            except TimeoutError:
                return

    async def _ask_forever(self, hook: Question[None]) -> None:
        was_healthy = True
        while True:
            await self._pause()
            begun = time.monotonic()
            reason = await _check(hook)
            self._measures.add(time.monotonic() - begun, is_healthy=not reason)
            if reason:
                _LOGGER.warning("the health check failed: %s", reason)
            if reason or not was_healthy:
                await self._report(healthy=not reason, reason=reason)
            was_healthy = not reason


async def _check(question: Question[None]) -> str:
    """Return why the replica is not healthy, or an empty string."""
    try:
        await question.ask()
    except _LoopStands as error:
        return str(error)
    except HookFailed as error:
        return f"check_health {error}"
    return ""


class _LoopStands(Exception):
    """The loop of user code does not respond."""


class _LoopThenHook:
    """Asks the loop for a sign of life, and then the hook."""

    def __init__(self, probe: LoopProbe, hook: Hook[None] | None, timeout_s: float) -> None:
        self._probe = probe
        self._hook = hook
        self.timeout_s = timeout_s

    async def ask(self) -> None:
        """Ask both.

        Raises:
            HookFailed: See ``Hook.ask``.
            _LoopStands: The loop was late.
        """
        if not await self._probe.is_felt(self.timeout_s):
            raise _LoopStands(
                f"the event loop gave no sign of life for {self.timeout_s:g} s: an `async def` "
                "of the class holds it, or nothing wakes it any more"
            )
        if self._hook is not None:
            await self._hook.ask()


def _nothing(_answer: object) -> None:
    """Accept any result: a check is passed if it does not raise."""
