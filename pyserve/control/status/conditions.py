"""Records since when each condition holds, without checking thousands at each event."""

from __future__ import annotations

import time
from collections.abc import Callable, Container

from pyserve.control.state.mesh import MeshState
from pyserve.control.status.health import observe
from pyserve.pace import Pace
from pyserve.types import ApplicationName

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
