"""One endpoint per event loop: drains events, dispatches them by token, flushes commands."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import os
from collections.abc import Callable
from typing import Protocol

from pyserve import _router
from pyserve.bridge._forks import note_endpoint, replace

_LOGGER = logging.getLogger(__name__)

# Events taken per turn of the loop, so that a flood of calls cannot starve timers and tasks.
_EVENTS_PER_TURN_MAX = 64

# Calls count from 1.
_PROBE_TOKEN = 0

# The attribute of a loop that holds its endpoint. It lives on the loop because a table keyed by
# the loop would be kept alive by its own values, which need the loop to add readers.
_ATTRIBUTE = "_pyserve_endpoint"


class EventReceiver(Protocol):
    """What takes the events of one token after the first."""

    def on_event(self, kind: int, subject: object, payload: object, /) -> None:
        """Record one event. Runs on the loop; must neither block nor raise."""

    def abandon(self) -> None:
        """The loop closes: no event will come, and nobody can be told any more."""


CallStarter = Callable[[int, _router.ServerCall, bytes | None], None]


class LoopProbe:
    """Asks a loop for signs of life, in the same way as events of calls reach it.

    It therefore notices a loop that is blocked, and one that sleeps because its wake-ups are lost.

    Args:
        endpoint: Of the loop; this is made and closed on it.
    """

    def __init__(self, endpoint: LoopEndpoint) -> None:
        self._endpoint = endpoint
        self._asked: concurrent.futures.Future[None] | None = None
        endpoint.receivers[_PROBE_TOKEN] = self

    async def is_felt(self, timeout_s: float) -> bool:
        """Return whether the loop gives a sign of life in time; on any loop, once at a time."""
        self._asked = asked = concurrent.futures.Future[None]()
        self._endpoint.raw.probe(_PROBE_TOKEN)
        answer = asyncio.wrap_future(asked)
        done, _ = await asyncio.wait([answer], timeout=timeout_s)
        answer.cancel()
        return bool(done)

    def close(self) -> None:
        """Ask no more. Idempotent."""
        self._endpoint.receivers.pop(_PROBE_TOKEN, None)

    def on_event(self, _kind: int, _subject: object, _payload: object, /) -> None:
        """Note a sign of life."""
        if self._asked is not None:
            # The answer may be to an earlier question, or nobody may wait for it any more.
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                self._asked.set_result(None)

    def abandon(self) -> None:
        """Do nothing: the loop closes, and the code that asked closes this."""


class LoopEndpoint:
    """Queue, reader and flush of one event loop.

    Attributes:
        loop: The loop that runs every receiver.
        raw: The native endpoint.
        receivers: Receiver by token. DONE removes one; one that is cancelled removes itself.
        on_call: Starts an incoming call; set by the one server that uses this endpoint.
        trace: Begins the span of a sampled call, and returns the context of its code; set by
            ``tell_traced``.
        on_woken: Called when the loop begins with events that have come, before the first of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        check_not_forked()
        self.loop = loop
        self.raw = _router.Endpoint()
        self.receivers: dict[int, EventReceiver] = {}
        self.on_call: CallStarter | None = None
        self.trace: Callable[[_router.ServerCall], contextvars.Context] | None = None
        self.on_woken: Callable[[], None] | None = None
        self.closed = False
        self._events: list[tuple[int, int, object, object]] = []
        self._readable = False
        self._close_callbacks: list[Callable[[], None]] = []
        self._turn_end_callbacks: list[Callable[[], None]] = []
        # A reader runs in the context it was added in. An empty one keeps the context variables of
        # the code that made this endpoint out of every later call.
        self._context = contextvars.Context()
        self._context.run(loop.add_reader, self.raw.fileno(), self._on_ready)
        # An endpoint wakes its loop only once it is armed; a new one has no events to miss.
        self.raw.arm()
        note_endpoint(self)

    @property
    def is_in_use(self) -> bool:
        """Whether a call of this loop is under way, in or out; from any thread."""
        receivers = self.receivers
        return len(receivers) > (_PROBE_TOKEN in receivers)

    def tell_traced(self, trace: Callable[[_router.ServerCall], contextvars.Context]) -> None:
        """Start sampled calls in the context that ``trace`` returns, from now on."""
        self.trace = trace
        self.raw.tell_traced()

    def schedule_flush(self) -> None:
        """Flush at the end of this turn. Call it on the loop, when a command returned True."""
        self.loop.call_soon(self.raw.flush)

    def at_turn_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the tasks of this turn have run; what it raises is logged.

        As ``call_soon`` does, at a fraction of its price where many ask in one turn.
        """
        if not self._turn_end_callbacks:
            self.loop.call_soon(self._end_turn)
        self._turn_end_callbacks.append(callback)

    def _end_turn(self) -> None:
        callbacks, self._turn_end_callbacks = self._turn_end_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                # One broken callback must not lose the others.
                _LOGGER.exception("a callback at the end of a turn failed")

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` before the endpoint closes, newest first."""
        self._close_callbacks.append(callback)

    def remove_close_callback(self, callback: Callable[[], None]) -> None:
        """Forget ``callback``; without effect when it is not known."""
        if callback in self._close_callbacks:
            self._close_callbacks.remove(callback)

    def close(self) -> None:
        """Cancel the calls of this loop and remove the reader. Idempotent."""
        if self.closed:
            return
        self.closed = True
        while self._close_callbacks:
            callback = self._close_callbacks.pop()
            try:
                callback()
            except Exception:
                _LOGGER.exception("a close callback of the endpoint failed")
        if not self.loop.is_closed():
            self.loop.remove_reader(self.raw.fileno())
        for receiver in tuple(self.receivers.values()):
            receiver.abandon()
        self.receivers.clear()
        self.raw.flush()
        self.raw.close()

    def leave_to_parent(self) -> None:
        """Read nothing more: this is a forked child, and the events are its parent's."""
        self.closed = True
        # The code that forked may run inside of ``process``.
        self._events.clear()
        replace(self.raw.fileno(), lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))

    def process(self) -> int:
        """Dispatch what waits now, at most one turn's share; returns how many events it was."""
        events = self._events = self.raw.drain(_EVENTS_PER_TURN_MAX)
        receivers = self.receivers
        on_call = self.on_call
        for kind, token, subject, payload in events:
            try:
                if kind == _CALL:
                    # Without a server it was stopped, which has answered the call.
                    if on_call is not None:
                        on_call(token, subject, payload)  # type: ignore[arg-type]
                else:
                    receiver = receivers.pop(token, None) if kind == _DONE else receivers.get(token)
                    if receiver is not None:
                        receiver.on_event(kind, subject, payload)
                    elif kind == _TRACED_CALL and on_call is not None:
                        context = self._begin_trace(subject)  # type: ignore[arg-type]
                        context.run(on_call, token, subject, payload)  # type: ignore[arg-type]
                    # Late events of an ended call have nobody to tell.
            except Exception:
                # One broken receiver must not lose the events of the others.
                _LOGGER.exception("an event of kind %d could not be dispatched", kind)
        return len(events)

    def _begin_trace(self, call: _router.ServerCall) -> contextvars.Context:
        assert self.trace is not None, "tell_traced has set it"
        try:
            return self.trace(call)
        except Exception:
            # A user's processor may raise anything; the call is answered regardless.
            _LOGGER.exception("the span of a call cannot begin")
            return contextvars.copy_context()

    def _on_ready(self) -> None:
        self._readable = True
        if self.on_woken is not None:
            self.on_woken()
        self._turn()

    def _turn(self) -> None:
        if self.closed:
            return
        while self.process() == 0:
            # Only ``arm`` clears the descriptor; ``False`` says that an event came meanwhile.
            self._readable = False
            if self.raw.arm():
                return
        # More events may wait. If the descriptor is still readable, the loop comes back by itself,
        # after the tasks that this turn has started.
        if not self._readable:
            self.loop.call_soon(self._turn)


def running_endpoint() -> LoopEndpoint:
    """Return the endpoint of the running loop, made on first use and closed with the loop.

    Raises:
        RuntimeError: No loop is running, or the process is a fork (see ``check_not_forked``).
    """
    loop = asyncio.get_running_loop()
    endpoint: LoopEndpoint | None = getattr(loop, _ATTRIBUTE, None)
    if endpoint is None or endpoint.closed:
        endpoint = LoopEndpoint(loop)
        setattr(loop, _ATTRIBUTE, endpoint)
        close_with_loop(endpoint)
    else:
        check_not_forked()
    return endpoint


def close_with_loop(endpoint: LoopEndpoint) -> None:
    """Close ``endpoint`` when its loop is closed, before the loop's own descriptors go.

    ``close`` is wrapped on the loop object, because every way to end a loop passes there:
    ``asyncio.run``, runners, uvloop, notebooks and loops that threads drive by hand.
    """
    loop = endpoint.loop
    close_loop = loop.close

    def close() -> None:
        # Closing a running loop raises, and must leave the endpoint as it is.
        if not loop.is_running():
            endpoint.close()
        close_loop()

    loop.close = close  # type: ignore[method-assign]


def check_not_forked() -> None:
    """Refuse to go on in a forked child.

    Raises:
        RuntimeError: The I/O threads were started before the fork and do not exist here.
    """
    if _router.forked():
        raise RuntimeError(
            "pyserve cannot be used in a forked process: its I/O threads did not survive the "
            "fork. Start the process with the multiprocessing method 'spawn' (or "
            "'forkserver'), or fork before the first pyserve server or channel is made."
        )


def endpoint_of(loop: asyncio.AbstractEventLoop) -> LoopEndpoint | None:
    """Return the endpoint of a loop, ``None`` when it has none or it was closed; any thread."""
    endpoint: LoopEndpoint | None = getattr(loop, _ATTRIBUTE, None)
    return None if endpoint is None or endpoint.closed else endpoint


_CALL = _router.CALL
_DONE = _router.DONE
_TRACED_CALL = _router.TRACED_CALL
