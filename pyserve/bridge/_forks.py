"""Detaches a forked child from the serving process that it was forked from, and ends it.

User code forks: multiprocessing, a data loader, a daemon. Child and parent share the files behind
all descriptors, and the child has a copy of the event loop. A child that went on with that loop
would take the parent's wake-ups, change what the parent's poller watches, and run the parent's
calls a second time. So in the child the numbers of those descriptors refer to nothing, and the
child ends where the code that forked returns control.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import gc
import os
import select
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Protocol

from pyserve import _router

_CAME_BACK = (
    "pyserve: a fork of process {parent} came back from the code that forked; it ends here, since "
    "it may not go on as its parent. End a fork by os._exit(), or start one by multiprocessing "
    "or subprocess\n"
)
_POOL_STEP = concurrent.futures.thread._WorkItem.run.__code__  # noqa: SLF001  # no public name


class Endpoint(Protocol):
    """What reads from a descriptor that wakes a loop."""

    def leave_to_parent(self) -> None:
        """Read nothing more, since this is a forked child."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """The process and the thread that a loop belongs to."""

    pid: int
    thread_id: int


# A fork is of the whole process, and so are these: the loops that serve, and all endpoints.
_LOOPS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Owner] = weakref.WeakKeyDictionary()
_ENDPOINTS: weakref.WeakSet[Endpoint] = weakref.WeakSet()
# A child's; never closed.
_POLLERS: list[select.epoll] = []


def keep_from_forks(loop: asyncio.AbstractEventLoop) -> None:
    """Ensure that no forked child goes on with ``loop``, which runs in this thread."""
    _LOOPS[loop] = _Owner(os.getpid(), threading.get_ident())


def note_endpoint(endpoint: Endpoint) -> None:
    """Notify ``endpoint`` in each forked child, as long as it lives."""
    _ENDPOINTS.add(endpoint)


def end_if_forked(error: BaseException) -> None:
    """End this process if it is a fork whose code has raised; return if it is not a fork.

    The exit code is that of ``SystemExit``; for other exceptions 1, after the traceback.
    """
    if _is_fork():
        _end(error)


def replace(descriptor: int, make: Callable[[], int]) -> None:
    """Put what ``make`` opens in the place of ``descriptor``, which is closed before.

    So there is a number for it where the process has as many open as it may.
    """
    os.close(descriptor)
    fresh = make()
    if fresh != descriptor:
        os.dup2(fresh, descriptor, inheritable=False)
        os.close(fresh)


def _is_fork() -> bool:
    pid = os.getpid()
    return any(owner.pid != pid for owner in _LOOPS.values())


def _after_in_child() -> None:
    try:
        if _is_fork():
            _end_where_it_comes_back()
        _leave_descriptors_to_parent()
    except BaseException as error:
        # Whatever is missing, it may not go on as its parent.
        _end(error)


def _end_where_it_comes_back() -> None:
    thread_id = threading.get_ident()
    for loop, owner in _LOOPS.items():
        if owner.thread_id == thread_id and not loop.is_closed() and loop.is_running():
            _make_next(loop)
    _end_with_pool_step()
    _end_with_anyio_step()
    _end_with_thread(thread_id)


def _leave_descriptors_to_parent() -> None:
    # First, since it lets go of many.
    _router.after_fork_in_child()
    for endpoint in _ENDPOINTS:
        endpoint.leave_to_parent()
    for loop in _LOOPS:
        if not loop.is_closed() and (poller := _poller_of(loop)) is not None:
            replace(poller, _new_poller)


def _new_poller() -> int:
    fresh = select.epoll()
    # It would close the number, which is the loop's then.
    _POLLERS.append(fresh)
    return fresh.fileno()


def _poller_of(loop: asyncio.AbstractEventLoop) -> int | None:
    """Return the descriptor that the loop sleeps on, of asyncio's own loops and of uvloop's."""
    selector = getattr(loop, "_selector", None)
    if selector is not None:
        return int(selector.fileno())
    backend = getattr(loop, "_get_backend_id", None)
    return None if backend is None else int(backend())


def _make_next(loop: asyncio.AbstractEventLoop) -> None:
    """Make the end of this process the loop's next step: no other callback of it runs."""
    ready = getattr(loop, "_ready", None)
    # Those of uvloop are hidden from Python, but for the collector.
    for owned in [ready] if ready is not None else gc.get_referents(loop):
        if isinstance(owned, deque):
            owned.clear()
        elif isinstance(owned, set):
            for timer in [each for each in owned if hasattr(each, "when")]:
                timer.cancel()
    loop.call_soon(_end, None)


def _end_with_pool_step() -> None:
    """In a thread of a pool: end before the thread takes the next step, which another call owns."""
    if (frame := _frame_of(_POOL_STEP)) is not None:
        step: Future[object] = frame.f_locals["self"].future
        # It runs before the callback that wakes the step's waiter by the parent's descriptor.
        callbacks: list[object] = vars(step)["_done_callbacks"]
        callbacks.insert(0, _end_after_step)


def _end_after_step(step: Future[object]) -> None:
    _end(None if step.cancelled() else step.exception())


def _end_with_anyio_step() -> None:
    """In a thread of anyio, where FastAPI runs ``def``: end where it would tell the loop."""
    backend = sys.modules.get("anyio._backends._asyncio")
    run = getattr(getattr(backend, "WorkerThread", None), "run", None)
    if run is not None and (frame := _frame_of(run.__code__)) is not None:
        frame.f_locals["self"].loop = _EndOfStep()


class _EndOfStep:
    """Stands for the loop that a thread of anyio tells how its step has ended."""

    def is_closed(self) -> bool:
        """Say that it is to be told."""
        return False

    def call_soon_threadsafe(self, *told: object) -> None:
        """End this process with the exception of the step, the last thing that is told."""
        error = told[-1]
        _end(error if isinstance(error, BaseException) else None)


def _frame_of(code: CodeType) -> FrameType | None:
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # documented
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def _end_with_thread(forking_thread_id: int) -> None:
    """Give the exit code of what a thread of user code raises to the process, now its only one."""
    inherited = threading.excepthook

    def end(arguments: threading.ExceptHookArgs) -> None:
        if threading.get_ident() == forking_thread_id and arguments.exc_value is not None:
            _end(arguments.exc_value)
        inherited(arguments)

    threading.excepthook = end


def _end(error: BaseException | None) -> None:
    code = 1
    # What cannot be written has no reader, and must not keep the child alive.
    with contextlib.suppress(Exception):
        if error is None:
            sys.stderr.write(_CAME_BACK.format(parent=os.getppid()))
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif isinstance(error.code, int):
            code = error.code & 0xFF
        elif error.code is None:
            code = 0
        else:
            sys.stderr.write(f"{error.code}\n")
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


os.register_at_fork(
    before=_router.before_fork,
    after_in_parent=_router.after_fork_in_parent,
    after_in_child=_after_in_child,
)
