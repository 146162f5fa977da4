"""When the controller acts, and when it checks the conditions of deployments.

It does both at once after an event, and less often while there are many. Each step handles
everything that has happened since the one before, so that a hundred events between two steps cost
about as much as one. Conditions of thousands of deployments are not checked at each event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable

from pyserve.control.health import observe
from pyserve.control.state.mesh import MeshState
from pyserve.observe.metrics.families import Tally
from pyserve.pace import Pace
from pyserve.types import ApplicationName

# The share of time for steps. The rest is for joins, reports and updates to routers.
_SHARE = 0.25
# A few steps of a mesh of hundreds; what follows from one event is never put off by them.
_FREE_S = 0.02
# Routers must have changes within 100 ms: this wait, the 20 ms for which changes are gathered, and
# the time it takes to send them.
_WAIT_MAX_S = 0.05


class Steps:
    """The turns of one controller.

    Args:
        step: does what there is to do; returns when it has something to do without an event.
        publish: tells routers what has changed, if its time has come.
        publish_at: returns when that is.

    Attributes:
        times: how long steps took.
    """

    def __init__(
        self,
        step: Callable[[float], Iterable[float | None]],
        publish: Callable[[float], object],
        publish_at: Callable[[], float | None],
    ) -> None:
        self._step = step
        self._publish = publish
        self._publish_at = publish_at
        self._loop = asyncio.get_running_loop()
        self.times = Tally()
        self._pace = Pace(_SHARE, free_s=_FREE_S, wait_max_s=_WAIT_MAX_S)
        self._asked: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._again_at: float | None = None
        self._is_closed = False
        # Resolved at the end of each step, for tasks that wait for the state to change.
        self._stepped: asyncio.Future[None] = self._loop.create_future()

    def ask(self) -> None:
        """Something has happened: let there be a step after it."""
        if self._asked is None and not self._is_closed:
            wait_s = self._pace.wait_s(self._loop.time())
            self._asked = (
                self._loop.call_later(wait_s, self._run)
                if wait_s
                else self._loop.call_soon(self._run)
            )

    async def next(self) -> None:
        """Wait until the state has changed, or may have."""
        # Shielded, because one waiter's cancellation must not cancel the others' wait.
        await asyncio.shield(self._stepped)

    def close(self, *, goes_on: bool = False) -> None:
        """Stop acting on timers; events are still followed by a step.

        Args:
            goes_on: Events are not either: the mesh goes on until another controller comes, and
                routers must not be notified that replicas leave this one.
        """
        self._is_closed = goes_on
        if self._timer is not None:
            self._timer.cancel()
        if goes_on and self._asked is not None:
            self._asked.cancel()

    def _run(self) -> None:
        if self._asked is not None:
            self._asked.cancel()
            self._asked = None
        # CPU time of this thread: other load on the machine must not lengthen the wait.
        begun, begun_cpu = self._loop.time(), time.thread_time()
        self._again_at = min((at for at in self._step(begun) if at is not None), default=None)
        ended = self._loop.time()
        self.times.add(ended - begun)
        self._pace.spend(time.thread_time() - begun_cpu, ended)
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times = (self._again_at, self._publish_at())
        due = min((at for at in times if at is not None), default=None)
        if due is not None:
            self._timer = self._loop.call_at(due, self._on_time)
        self._stepped.set_result(None)
        self._stepped = self._loop.create_future()

    def _on_time(self) -> None:
        now = self._loop.time()
        if self._again_at is not None and self._again_at <= now:
            self._run()
        else:
            self._publish(now)
            self._end()


# People read it, in seconds.
_LOOK_SHARE, _LOOK_FREE_S, _LOOK_WAIT_MAX_S = 0.02, 0.02, 0.5


class Conditions:
    """Checks all conditions from time to time: at each change, unless that costs too much.

    Args:
        state: of the mesh.
        changing: as in ``health.observe``.
        clock: returns the time on which ``look`` is called.
    """

    def __init__(
        self, state: MeshState, changing: Container[ApplicationName], clock: Callable[[], float]
    ) -> None:
        self._state = state
        self._changing = changing
        self._clock = clock
        self._pace = Pace(_LOOK_SHARE, free_s=_LOOK_FREE_S, wait_max_s=_LOOK_WAIT_MAX_S)
        self._again_at: float | None = None

    def look(self, now: float) -> None:
        """Something may have changed."""
        wait_s = self._pace.wait_s(now)
        if not wait_s:
            self.look_now()
        elif self._again_at is None:
            self._again_at = now + wait_s

    def look_now(self) -> None:
        """Somebody wants to know."""
        begun_cpu = time.thread_time()
        observe(self._state, self._changing, time.time())
        self._pace.spend(time.thread_time() - begun_cpu, self._clock())
        self._again_at = None

    def next_wakeup(self) -> float | None:
        """Return when to look again, ``None`` while nothing is new."""
        return self._again_at
