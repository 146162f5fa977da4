"""Asks the user's ``record_routing_stats`` at intervals and reports what it says, when it is new.

Policies of the user's see the answers. One that fails costs a line in the log: routers keep the
last good one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from pyserve.config import RequestRouterConfig

_LOGGER = logging.getLogger(__name__)
# All replicas' facts travel to all routers whenever one of them changes.
FACTS_BYTES_MAX = 16 * 1024
# One line in so many seconds, however often the method is asked.
_COMPLAINT_PERIOD_S = 60.0


def facts_json(value: object) -> str:
    """Return what a class says of itself as it travels: a JSON object, ``""`` for an empty one.

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


class _Failed(Exception):
    """There are no new stats; the text says why."""


class StatsReporter:
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
        self._hook: Callable[[], object] | None = getattr(instance, "record_routing_stats", None)
        self._period_s = config.request_routing_stats_period_s
        self._timeout_s = config.request_routing_stats_timeout_s
        self._report = report
        self._user_loop = user_loop
        self._asked: concurrent.futures.Future[str] | None = None
        self._silent_until = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._hook is not None:
            loop = self._user_loop or asyncio.get_running_loop()
            self._task = asyncio.create_task(self._ask_forever(self._hook, loop))
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

    async def _ask_forever(
        self, hook: Callable[[], object], user_loop: asyncio.AbstractEventLoop
    ) -> None:
        said = ""
        while True:
            try:
                now = await self._ask(hook, user_loop)
            except Exception as error:
                self._complain(error)
            else:
                if now != said:
                    await self._report(now)
                said = now
            await asyncio.sleep(self._period_s)

    async def _ask(self, hook: Callable[[], object], user_loop: asyncio.AbstractEventLoop) -> str:
        # A method that hangs has one thread, however often its time comes.
        if self._asked is not None and not self._asked.done():
            raise _Failed("the call before has not ended")
        self._asked = _begin(hook, user_loop)
        answer = asyncio.wrap_future(self._asked)
        try:
            await asyncio.wait([answer], timeout=self._timeout_s)
            if not answer.done():
                raise _Failed(f"it took longer than {self._timeout_s:g} s")
            if answer.cancelled():
                raise _Failed("it was cancelled")
            return answer.result()
        finally:
            answer.cancel()  # Ends a coroutine that goes on; a thread has to end by itself.

    def _complain(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._silent_until:
            self._silent_until = now + _COMPLAINT_PERIOD_S
            _LOGGER.warning(
                "record_routing_stats failed (%s); routers keep what it said before", error
            )


def _begin(
    hook: Callable[[], object], user_loop: asyncio.AbstractEventLoop
) -> concurrent.futures.Future[str]:
    """Call the method: a coroutine function in its loop, others where they may block."""
    if inspect.iscoroutinefunction(hook):
        return asyncio.run_coroutine_threadsafe(_facts_of(hook()), user_loop)

    def ask() -> str:
        result = hook()
        if inspect.isawaitable(result):
            return asyncio.run_coroutine_threadsafe(_facts_of(result), user_loop).result()
        return facts_json(result)

    return _in_thread(ask)


async def _facts_of(result: Awaitable[object]) -> str:
    """Await the answer, and read it in the same loop: user code must not change it meanwhile."""
    try:
        return facts_json(await result)
    except (Exception, SystemExit) as error:
        raise _failed(error) from error


def _failed(error: BaseException) -> _Failed:
    return _Failed(": ".join(filter(None, (type(error).__name__, str(error)))))


def _in_thread(step: Callable[[], str]) -> concurrent.futures.Future[str]:
    """Run ``step`` in a thread that the end of the process does not wait for."""
    outcome: concurrent.futures.Future[str] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(step))
        except _Failed as error:
            outcome.set_exception(error)
        except BaseException as error:
            # Futures of asyncio cannot hold what ends a task, an iterator or the process.
            outcome.set_exception(_failed(error))

    threading.Thread(target=run, name="pyserve-routing-stats", daemon=True).start()
    return outcome
