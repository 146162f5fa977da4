"""Each ``pyserve run`` that follows from a terminal, and the lines for it.

A run that follows is alive: the mesh stays for it, and replacing its deploys is reported on its
terminal. A run whose connection breaks has some time to come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pyserve.config.control import RUN_RETURN_TIMEOUT_S
from pyserve.control.state.specs import Run

# Unread lines are dropped beyond this many, for example when a terminal is stopped (Ctrl-S).
_LINES_MAX = 1000


@dataclass(eq=False, slots=True)
class Follower:
    """The queue of lines for one terminal."""

    run: Run
    _lines: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(_LINES_MAX + 1))

    def tell(self, line: str) -> None:
        """Queue a line; a full queue drops it."""
        if self._lines.qsize() < _LINES_MAX:
            self._lines.put_nowait(line)

    def end(self) -> None:
        """End after what is queued."""
        if not self._lines.full():
            self._lines.put_nowait(None)

    async def next(self) -> str | None:
        """Return the next line, ``None`` when there will be no more."""
        return await self._lines.get()


class Runs:
    """All runs that follow; for one loop.

    Args:
        return_timeout_s: how long one that follows no more may take to come back.

    Attributes:
        on_left: called after one has gone.
        on_lost: called with one that has gone, when it has not come back in time.
    """

    def __init__(self, return_timeout_s: float = RUN_RETURN_TIMEOUT_S) -> None:
        self.on_left: Callable[[], None] = lambda: None
        self.on_lost: Callable[[Run], None] = lambda _run: None
        self._return_timeout_s = return_timeout_s
        self._followers: set[Follower] = set()
        self._absent: dict[Run, asyncio.TimerHandle] = {}

    def follow(self, run: Run) -> Follower:
        """Send a run its lines, until ``leave``."""
        if run in self._absent:
            self._absent.pop(run).cancel()
        follower = Follower(run)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        """Forget a run that has gone, unless it comes back."""
        self._followers.discard(follower)
        self.expect(follower.run)
        self.on_left()

    def expect(self, run: Run) -> None:
        """Wait for a run that is known and does not follow; it has some time to come back."""
        if not self.is_following(run) and run not in self._absent:
            loop = asyncio.get_running_loop()
            self._absent[run] = loop.call_later(self._return_timeout_s, self._lose, run)

    def _lose(self, run: Run) -> None:
        del self._absent[run]
        self.on_lost(run)

    def others(self, run_id: str) -> tuple[Run, ...]:
        """Return the runs that follow, except one."""
        found = {each.run for each in self._followers if each.run.id != run_id}
        return tuple(sorted(found, key=lambda run: run.pid))

    def is_following(self, run: Run) -> bool:
        """Say whether a run is alive."""
        return any(each.run == run for each in self._followers)

    def tell(self, run: Run | None, line: str) -> bool:
        """Queue a line for a run's terminal; return whether there is one."""
        readers = [each for each in self._followers if each.run == run]
        for each in readers:
            each.tell(line)
        return bool(readers)

    def take_over(self, application: str, former: Run | None, present: Run | None) -> str:
        """Notify a run that its application is replaced; return a notice for the other run."""
        newcomer = "another program" if present is None else str(present)
        self.tell(former, f"{newcomer} replaces the application {application!r} of this run")
        if former is None:
            return f"replaces the application {application!r}, which another program deployed"
        has_ended = "" if self.is_following(former) else ", which has ended"
        return f"replaces the application {application!r} of {former}{has_ended}"

    def serves_on(self, application: str, run: Run | None) -> None:
        """Notify a run that the deploy to replace its application has failed or was withdrawn."""
        self.tell(run, f"the application {application!r} of this run serves on, as it was")

    def close(self) -> None:
        """Notify every run that the mesh has ended."""
        for follower in self._followers:
            follower.end()

    def forget_absent(self) -> None:
        """Stop waiting for runs to come back."""
        for timer in self._absent.values():
            timer.cancel()
        self._absent.clear()
