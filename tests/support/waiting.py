"""Bounded waits for conditions that nothing announces.

Where there is something to wait on (an event, a future, a process), tests wait on that.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

_INTERVAL_S = 0.01
# What is waited for comes within a second where nothing else runs; it costs no time then.
_TIMEOUT_S = 30.0


def wait_until(
    condition: Callable[[], object],
    timeout_s: float = _TIMEOUT_S,
    what: str | None = None,
    *,
    interval_s: float = _INTERVAL_S,
) -> None:
    """Look at ``condition`` until it holds.

    Args:
        condition: Returns something true once it holds; what it raises passes through.
        timeout_s: Seconds until the wait gives up.
        what: The condition in words, for the failure; its source if not given.
        interval_s: Seconds between two looks; more where a look costs something.

    Raises:
        AssertionError: It did not hold in time; the message has its last value.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(condition, value, timeout_s, what))
        time.sleep(interval_s)


async def eventually(
    condition: Callable[[], object | Awaitable[object]],
    timeout_s: float = _TIMEOUT_S,
    what: str | None = None,
) -> None:
    """Do what ``wait_until`` does, and leave the loop free; ``condition`` may be a coroutine."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(condition, value, timeout_s, what))
        await asyncio.sleep(_INTERVAL_S)


def _failure(
    condition: Callable[[], object], value: object, timeout_s: float, what: str | None
) -> str:
    if what is None:
        try:
            what = inspect.getsource(condition).strip()
        except (OSError, TypeError):
            what = repr(condition)
    return f"not within {timeout_s:g} s: {what} (last value: {value!r})"
