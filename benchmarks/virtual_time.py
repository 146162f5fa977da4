"""An event loop whose clock jumps to the next timer: waiting takes no time.

What runs on it must wait by the loop's timers and futures; threads and sockets would be
overtaken by the clock wherever a timer is set.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

# Where no timer is set, a thread may still bring the loop on; one that takes longer is none.
THREADS_WAIT_S = 5.0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """``time()`` begins at 0 and moves only when everything waits."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now

    async def shutdown_default_executor(self, *_: object, **__: object) -> None:
        # Without the bound that asyncio has from 3.12 on: its timer would overtake the threads.
        await super().shutdown_default_executor()

    def jump(self, wait_s: float) -> None:
        """Let so many seconds pass."""
        self._now += wait_s


class _JumpingSelector(selectors.DefaultSelector):
    """Returns at once from a wait, after the clock has made it."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            if not (ready := super().select(THREADS_WAIT_S)):
                raise RuntimeError("everything waits, and no timer is set: a deadlock")
            return ready
        self._loop.jump(timeout)
        return ready


def run_virtual(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in virtual time.

    Raises:
        RuntimeError: It waits for something that no timer will bring.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
