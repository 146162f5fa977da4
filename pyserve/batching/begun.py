"""Tasks whose first step runs where they are made, and not in the loop's next turn.

A step of a model that waits for a turn of the loop waits for all that was scheduled before, such
as the callers of the last step. ``eager_start`` of ``asyncio.Task`` does this from Python 3.12 on,
and for tasks of asyncio's own class only.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine
from typing import Any


def begin(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    context: contextvars.Context,
) -> asyncio.Task[None]:
    """Make a task of ``coroutine`` and run it to its first wait, as that task and in ``context``.

    Nothing is raised here: what the coroutine raises, its task does.
    """
    begun = _Begun(coroutine)
    task = loop.create_task(begun, context=context)
    if not begun.is_begun:  # Else a task factory has done it.
        maker = asyncio.current_task(loop)
        if maker is not None:
            _leave_task(loop, maker)
        _enter_task(loop, task)
        try:
            context.run(begun.begin)
        finally:
            _leave_task(loop, task)
            if maker is not None:
                _enter_task(loop, maker)
    return task


class _Begun(Coroutine[Any, Any, None]):
    """A coroutine whose first step may have run before its task asks for it."""

    __slots__ = ("_coroutine", "_end", "_has_news", "_waits_for", "is_begun")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self.is_begun = False
        # The outcome of the first step, until the task has received it.
        self._has_news = False
        self._waits_for: Any = None
        self._end: BaseException | None = None

    def begin(self) -> None:
        """Run the first step and keep its outcome."""
        self.is_begun = self._has_news = True
        try:
            self._waits_for = self._coroutine.send(None)
        except BaseException as end:
            self._end = end

    def send(self, value: Any) -> Any:
        """Go on; the first time, return what the first step waits for."""
        self.is_begun = True
        return self._told() if self._has_news else self._coroutine.send(value)

    def throw(self, error: Any, value: Any = None, trace: Any = None) -> Any:  # noqa: ARG002
        """Raise in the coroutine: its task was cancelled, perhaps before it knew of the wait."""
        if self._has_news:
            # A task cancels what it waits for, and the coroutine hears of it from there.
            waits_for = self._told()
            if waits_for is not None and waits_for.cancel():
                return waits_for
        return self._coroutine.throw(error)

    def _told(self) -> Any:
        self._has_news = False
        waits_for, end = self._waits_for, self._end
        self._waits_for = self._end = None
        if end is not None:
            raise end
        return waits_for

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Any:
        """Only tasks run it."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        # Debuggers and stack dumps look for ``cr_frame``, ``cr_code`` and their like.
        return getattr(self._coroutine, name)
