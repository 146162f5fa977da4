"""Notices when user code blocks the replica's event loop, and logs where.

Other calls of the replica wait for the loop, so a handler that blocks is a fault even if nothing
fails. Watching costs next to nothing: a thread checks at intervals whether the loop's thread is
inside a callback; only then it asks the loop for a sign of life, and a loop that gives none in time
has stalled. Code that holds the interpreter lock all the while is noticed only when it releases it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Self

from pyserve.bridge import LoopEndpoint, endpoint_of
from pyserve.observe.delays import PROCESS_DELAYS, StallDelay, wall_clock_from
from pyserve.replica.exits import run_to_end

# An idle loop is looked at this much less often (measured: ten looks a second cost up to 0.15 %
# of a core, which is more than everything else that an idle mesh does).
IDLE_FACTOR = 10
# The same place is not logged again within this time; every stall is counted (arbitrary).
_REPEAT_S = 10.0
# How often, during a stall, the thread checks whether it is to end.
_END_CHECK_S = 1.0
_STACK_FRAMES_MAX = 30
_UNSEEN = "code that was over before it could be looked at"
# Code that users did not write, and cannot fix.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StallStats:
    """Stalls of one loop that have been noticed.

    Attributes:
        count: How many, the one that lasts included.
        total_s, longest_s: Of those that have ended, from when they were first seen.
    """

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0


def frame_of(thread_id: int) -> FrameType | None:
    """Return what a thread runs at this moment, ``None`` for one that has ended.

    CPython 3.11 may collect garbage inside of ``sys._current_frames``, under a lock of all its
    threads. A finalizer that lets others run there, and a thread that ends meanwhile, wait for each
    other for ever, and the whole process with them (python/cpython#106883). Later ones collect
    between two instructions only.
    """
    collects = sys.version_info < (3, 12) and gc.isenabled()
    if collects:
        gc.disable()
    try:
        return sys._current_frames().get(thread_id)  # noqa: SLF001  # documented
    finally:
        if collects:
            gc.enable()


class LoopWatchdog:
    """Watches the running loop while its context is entered.

    A stall of twice ``stall_s`` is found for certain in a busy loop, and while calls are under way;
    of code that an own timer has begun after a rest, one of ``1 + IDLE_FACTOR`` times that. Shorter
    ones are found by chance.

    Args:
        stall_s: How long a callback may hold the loop, in seconds, above 0.
        on_stall: Called with the text of each log record; by default it is logged.
    """

    def __init__(self, stall_s: float, on_stall: Callable[[str], None] | None = None) -> None:
        self._stall_s = stall_s
        self._on_stall = on_stall or _LOGGER.warning
        self._stats = StallStats()
        self._ended = threading.Event()
        # The thread rests between rare looks, and when the loop last began with what had come.
        self._rests = False
        self._woken = threading.Event()
        self._turned_at = self._alive_at = time.monotonic()
        self._endpoint: LoopEndpoint | None = None
        self._logged_at: dict[tuple[str, int], float] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        loop, loop_thread_id = asyncio.get_running_loop(), threading.get_ident()
        self._endpoint = endpoint_of(loop)
        if self._endpoint is not None:
            self._endpoint.on_woken = self._on_woken
        self._thread = threading.Thread(
            target=self._watch, args=(loop, loop_thread_id), name="pyserve-watchdog", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._endpoint is not None:
            self._endpoint.on_woken = None
        self._ended.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def stats(self) -> StallStats:
        """Return what was noticed so far; from any thread."""
        return self._stats

    def _on_woken(self) -> None:
        self._turned_at = time.monotonic()
        if self._rests:
            self._rests = False
            self._woken.set()

    def _rest(self, rest_s: float, turned_at: float) -> bool:
        """Wait for a call, at most so long; return whether one has come since ``turned_at``."""
        self._woken.clear()
        self._rests = True
        if self._turned_at == turned_at and not self._ended.is_set():
            self._woken.wait(rest_s)
        self._rests = False
        return self._turned_at != turned_at

    def _watch(self, loop: asyncio.AbstractEventLoop, loop_thread_id: int) -> None:
        pause_s = self._stall_s
        while not self._ended.wait(self._stall_s):
            turned_at, looked_at = self._turned_at, time.monotonic()
            if _is_idle(frame_of(loop_thread_id)):
                self._alive_at = looked_at
                if self._endpoint is not None and self._endpoint.is_in_use:
                    pause_s = self._stall_s  # Its code may go on at any moment.
                    continue
                pause_s = min(2 * pause_s, IDLE_FACTOR * self._stall_s)
                if self._rest(pause_s - self._stall_s, turned_at):
                    pause_s = self._stall_s
                continue
            pause_s = self._stall_s
            turned = _Heartbeat()
            try:
                loop.call_soon_threadsafe(turned)
            except RuntimeError:  # The loop was closed under the watch.
                return
            if not turned.event.wait(self._stall_s) and not self._ended.is_set():
                self._on_stalled(loop_thread_id, turned)
            self._alive_at = turned.at

    def _on_stalled(self, loop_thread_id: int, turned: _Heartbeat) -> None:
        frame, begun_at = frame_of(loop_thread_id), self._begun_at(turned.asked_at)
        self._stats = replace(self._stats, count=self._stats.count + 1)
        place = _UNSEEN
        if frame is not None and not turned.event.is_set():
            place = _place(frame)
            self._log(frame)
        del frame  # It would keep the locals of user code alive.
        while not turned.event.wait(_END_CHECK_S):
            if self._ended.is_set():
                return
        lasted_s = turned.at - turned.asked_at
        self._stats = replace(
            self._stats,
            total_s=self._stats.total_s + lasted_s,
            longest_s=max(self._stats.longest_s, lasted_s),
        )
        unix_s = wall_clock_from(time.monotonic())
        PROCESS_DELAYS.add_stall(StallDelay(place, unix_s(begun_at), unix_s(turned.at)))

    def _begun_at(self, asked_at: float) -> float:
        """Return when code has taken the loop that held it at ``asked_at``, as far as is known."""
        turned_at = self._turned_at
        if self._alive_at <= turned_at <= asked_at:
            return turned_at  # A call that came has begun it.
        return (self._alive_at + asked_at) / 2

    def _log(self, frame: FrameType) -> None:
        place, now = (frame.f_code.co_filename, frame.f_lineno), time.monotonic()
        if now - self._logged_at.get(place, -_REPEAT_S) < _REPEAT_S:
            return
        self._logged_at = {p: t for p, t in self._logged_at.items() if now - t < _REPEAT_S}
        self._logged_at[place] = now
        stack = "".join(traceback.format_list(traceback.extract_stack(frame)[-_STACK_FRAMES_MAX:]))
        self._on_stall(
            f"the event loop has stood still for {self._stall_s:g} s (stall "
            f"{self._stats.count}): this code holds it, and other calls of the replica wait; "
            f"await instead, write `def` for the handler, or use asyncio.to_thread\n{stack}"
        )


class _Heartbeat:
    """A callback of the loop that notes when it ran."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.asked_at = self.at = time.monotonic()

    def __call__(self) -> None:
        self.at = time.monotonic()
        self.event.set()


def _place(frame: FrameType) -> str:
    """Return the innermost line that is not in a library, for people."""
    own: FrameType | None = frame
    while own is not None and own.f_code.co_filename.startswith(_LIBRARIES):
        own = own.f_back
    found = frame if own is None else own
    return f"{Path(found.f_code.co_filename).name}:{found.f_lineno} in {found.f_code.co_name}"


def _waiting_code() -> frozenset[object]:
    """The code in which a thread is whose loop waits: uvloop's is native below what runs it."""
    selecting = {
        kind.select.__code__
        for kind in vars(selectors).values()
        if isinstance(kind, type) and hasattr(kind, "select")
    }
    return frozenset({asyncio.Runner.run.__code__, run_to_end.__code__, *selecting})


_WAITING_CODE = _waiting_code()


def _is_idle(frame: FrameType | None) -> bool:
    return frame is None or frame.f_code in _WAITING_CODE
