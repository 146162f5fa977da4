"""A running loop whose clock jumps to the next timer, for tests of what timers decide."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

import pytest


class _Jumping:
    """A selector that never waits: it moves its clock on by the time that it was to wait."""

    def __init__(self, selector: selectors.BaseSelector, now_s: float) -> None:
        self._selector = selector
        self.now_s = now_s

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready; without a timer there is only the real thing to wait for."""
        ready = self._selector.select(None if timeout is None else 0)
        if not ready and timeout is not None:
            self.now_s += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def use_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the running loop's timers fire at once, in their order, for the rest of the test.

    No slow machine changes then which of two timers comes first. Nothing may wait for a thread or a
    process while a timer runs: the timer would not wait for it.
    """
    loop: Any = asyncio.get_running_loop()
    jumping = _Jumping(loop._selector, loop.time())
    monkeypatch.setattr(loop, "_selector", jumping)
    monkeypatch.setattr(loop, "time", lambda: jumping.now_s)
