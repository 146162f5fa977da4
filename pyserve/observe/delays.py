"""Records what calls waited for in this process: batches, model loads, own calls, the event loop.

It answers afterwards where the time of a call went. An ordinary call costs nothing here: a record
is made for a whole batch, load or handle call when it ends. Records are kept only if these were
slow, failed, are traced, or if their client asks for them. They hold names, ids and times, but no
arguments. They do not say how long a call was in the loop's queue or in its own code, since both
would have to be timed for every call. Code that blocks the loop makes the queue long; it is
recorded as a stall.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# How many of each kind are kept, the slowest recent ones.
KEPT_MAX = 1000
# Members kept of one batch or load; others are only counted. Arbitrary, above common sizes.
MEMBERS_MAX = 256
# Each is longer than a tenth of a second, so they span at least half a minute. Arbitrary.
_STALLS_MAX = 300
# A batch may wait for another one, or a load, and so on.
_DEPTH_MAX = 4
# One in a hundred is above the bound: 1.05 ** 1 makes up for 0.9995 ** 99, nearly. A change of pace
# of ten times shows after fifty slower ones, or some thousands that are faster.
_UP, _DOWN = 1.05, 0.9995


class Slowest:
    """Finds the slowest recent durations: a running bound that one in a hundred exceeds."""

    __slots__ = ("_bound_s",)

    def __init__(self) -> None:
        self._bound_s = 0.0

    def takes(self, duration_s: float) -> bool:
        """Return whether this one is among them."""
        if duration_s <= self._bound_s:
            self._bound_s *= _DOWN
            return False
        self._bound_s = self._bound_s * _UP if self._bound_s else duration_s
        return True


@dataclass(frozen=True, slots=True)
class BatchDelay:
    """One batch; times in seconds of ``time.time``.

    Attributes:
        function: What messages call the batched function.
        reason: Why it left.
        model_id: Its model, or ``""``.
        size: Its calls.
        left_at, ended_at: When it began to run, and ended.
        failed: It raised.
        request_id: Under which its own calls and loads are kept.
        members: Request ids, and since when each waited; at most ``MEMBERS_MAX``.
    """

    function: str
    reason: str
    model_id: str
    size: int
    left_at: float
    ended_at: float
    failed: bool
    request_id: str
    members: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class LoadDelay:
    """One load of a model; times in seconds of ``time.time``.

    Attributes:
        loader: What messages call the loader.
        model_id: What was loaded.
        begun_at, ended_at: When it had room, and was through.
        error: Type of what it raised, or ``""``.
        members: Request ids, and since when each waited; at most ``MEMBERS_MAX``.
    """

    loader: str
    model_id: str
    begun_at: float
    ended_at: float
    error: str
    members: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class CallDelay:
    """One call of a handle; times in seconds of ``time.time``.

    Attributes:
        name: ``app/Deployment.method``.
        request_id: Of the request that made it, which the called one has too.
        begun_at, ended_at: From ``remote`` to the end of the answer.
        error: Type of what came instead of it, or ``""``.
    """

    name: str
    request_id: str
    begun_at: float
    ended_at: float
    error: str


@dataclass(frozen=True, slots=True)
class StallDelay:
    """A time in which code held the event loop, and all calls; in seconds of ``time.time``.

    Attributes:
        place: Which code: ``file.py:7 in function``.
        begun_at, ended_at: From when it was noticed to when the loop turned again.
    """

    place: str
    begun_at: float
    ended_at: float


class Delays:
    """The records of one process; bounded, and for any thread.

    Attributes:
        is_on: Somebody may ask; in a process that answers no calls nobody does.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self.is_on = False
        self._kept_max = kept_max
        self._batches: deque[BatchDelay] = deque(maxlen=kept_max)
        self._loads: deque[LoadDelay] = deque(maxlen=kept_max)
        self._calls: deque[CallDelay] = deque(maxlen=kept_max)
        self._stalls: deque[StallDelay] = deque(maxlen=_STALLS_MAX)
        self._slowest_batches = Slowest()
        self._slowest_calls = Slowest()

    # --- what happens ------------------------------------------------------------------------

    def keeps_batch(self, duration_s: float) -> bool:
        """Return whether to keep a batch whose first call waited this long for its answer."""
        # In a process with few calls, all are kept, whatever their times.
        is_slow = self._slowest_batches.takes(duration_s)
        return is_slow or len(self._batches) < self._kept_max

    def add_batch(self, delay: BatchDelay) -> None:
        """Keep one."""
        self._batches.append(delay)

    def add_load(self, delay: LoadDelay) -> None:
        """Keep one; loads are few."""
        self._loads.append(delay)

    def keeps_call(self, duration_s: float) -> bool:
        """Return whether a call of a handle is kept that took so long."""
        is_slow = self._slowest_calls.takes(duration_s)
        return is_slow or len(self._calls) < self._kept_max

    def add_call(self, delay: CallDelay) -> None:
        """Keep one."""
        self._calls.append(delay)

    def add_stall(self, delay: StallDelay) -> None:
        """Keep one; a loop that is held has few."""
        self._stalls.append(delay)

    # --- who asks ----------------------------------------------------------------------------

    def of(self, request_id: str) -> dict[str, Any]:
        """Return what a request waited for, as values of JSON; times in seconds.

        ``batches``, ``loads`` and ``calls`` are in the order in which they began. A batch that made
        calls under an id of its own has them below ``inside``. ``stalls`` are all of late:
        whichever call was there then has waited for them.
        """
        stalls = [_stall_view(each) for each in tuple(self._stalls)]
        return {**self._of(request_id, depth=0), "stalls": stalls}

    def _of(self, request_id: str, depth: int) -> dict[str, Any]:
        batches = [*self._batch_views(request_id, depth)]
        loads = [*self._load_views(request_id)]
        calls = [_call_view(each) for each in tuple(self._calls) if each.request_id == request_id]
        begun: Callable[[dict[str, Any]], float] = lambda view: view["begun_at"]  # noqa: E731
        return {
            "request_id": request_id,
            "batches": sorted(batches, key=begun),
            "loads": sorted(loads, key=begun),
            "calls": sorted(calls, key=begun),
        }

    def _batch_views(self, request_id: str, depth: int) -> Iterator[dict[str, Any]]:
        for batch in tuple(self._batches):
            since = _since(batch.members, request_id)
            if since is not None:
                inside = {}
                if batch.request_id not in ("", request_id) and depth < _DEPTH_MAX:
                    inside = self._of(batch.request_id, depth + 1)
                yield {
                    "function": batch.function,
                    "reason": batch.reason,
                    "model_id": batch.model_id,
                    "size": batch.size,
                    "begun_at": since,
                    "waited_s": max(0.0, batch.left_at - since),
                    "ran_s": batch.ended_at - batch.left_at,
                    "failed": batch.failed,
                    "members": [each for each, _ in batch.members],
                    "inside": inside,
                }

    def _load_views(self, request_id: str) -> Iterator[dict[str, Any]]:
        for load in tuple(self._loads):
            since = _since(load.members, request_id)
            if since is not None:
                yield {
                    "loader": load.loader,
                    "model_id": load.model_id,
                    "begun_at": since,
                    "room_s": max(0.0, load.begun_at - since),
                    "waited_s": max(0.0, load.ended_at - since),
                    "load_s": load.ended_at - load.begun_at,
                    "error": load.error,
                }


def _since(members: Sequence[tuple[str, float]], request_id: str) -> float | None:
    return next((since for each, since in members if each == request_id), None)


def _call_view(call: CallDelay) -> dict[str, Any]:
    return {
        "to": call.name,
        "begun_at": call.begun_at,
        "duration_s": call.ended_at - call.begun_at,
        "error": call.error,
    }


def _stall_view(stall: StallDelay) -> dict[str, Any]:
    return {
        "place": stall.place,
        "begun_at": stall.begun_at,
        "duration_s": stall.ended_at - stall.begun_at,
    }


def asks(source: object) -> bool:
    """Return whether the client of the current request has asked for an explanation of its call.

    Args:
        source: Of the request: it has the native call, or knows those of a batch.
    """
    call = getattr(source, "call", None)
    if call is not None:
        return bool(getattr(call, "is_asked", False))
    of_batch = getattr(source, "asks", None)
    return of_batch is not None and bool(of_batch())


def wall_clock_from(now_s: float) -> Callable[[float], float]:
    """Return what makes seconds of ``time.time`` of those of a clock that now says ``now_s``."""
    offset_s = time.time() - now_s
    return lambda at_s: at_s + offset_s


PROCESS_DELAYS = Delays()
"""The delays of this process, global because decorators and handles report to it."""
