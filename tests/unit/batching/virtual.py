"""A loop whose time passes only when nothing is ready: waits take no time, and none is missed."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, moves the loop's time to the next timer."""

    jump: Callable[[float], None] = staticmethod(lambda _: None)  # type: ignore[assignment]

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everything waits, and no timer runs")
        if not ready and timeout:
            self.jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` begins at 1000 s."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        super().__init__(selector)
        self._now = 1000.0
        selector.jump = self._jump  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now

    def _jump(self, seconds: float) -> None:
        # Exactly to the timer: adding what is left of it would miss it by a rounding.
        due = min((handle.when() for handle in self._scheduled), default=self._now + seconds)  # type: ignore[attr-defined]
        self._now = max(self._now, due)

    def timers(self) -> int:
        """Return how many timers are set."""
        return sum(not handle.cancelled() for handle in self._scheduled)  # type: ignore[attr-defined]


def run_virtually(main: Coroutine[Any, Any, Any]) -> Any:
    """Run ``main`` on a loop of virtual time and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
