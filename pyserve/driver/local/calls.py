"""The way of a call inside of one process: from the loop of its caller to that of the replica.

A call has two ends. ``LocalCall`` holds what both touch; each field is written by one of the two
loops only, and whatever crosses goes through ``call_soon_threadsafe``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from grpc import StatusCode

from pyserve.api.handles.calls import Metadata, Pinned
from pyserve.bridge import DONE, MESSAGE
from pyserve.errors import BackPressure, DeploymentUnavailable
from pyserve.types import DeploymentKey

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Message, Receiver, Reservation, Route, WireCall
    from pyserve.driver.local.replica import LocalReplica

# As much of a stream may be on its way to a slow reader as between processes.
WINDOW_BYTES = 64 * 1024


class LocalCall:
    """One call between two loops.

    Attributes:
        route: What is called.
        message: The framed request, in one piece.
        deadline: In seconds of ``time.monotonic``; ``None``: none.
        reservation: The place that it has already, if any.
        replica: Where it runs; ``None``: nowhere.
        on_room: Called on the replica's loop when the reader of a stream has taken a message.
        on_stop: Called there before its method is told to stop.
    """

    __slots__ = (
        "_code",
        "_details",
        "_loop",
        "_metadata",
        "_receiver",
        "_unread_bytes",
        "deadline",
        "message",
        "on_room",
        "on_stop",
        "replica",
        "reservation",
        "route",
    )

    def __init__(
        self,
        route: Route,
        message: Message,
        timeout_s: float | None,
        receiver: Receiver,
        reservation: LocalReservation | None,
    ) -> None:
        self.route = route
        self.message = joined(message)
        self.deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.reservation = reservation
        self.replica: LocalReplica | None = None
        self.on_room: Callable[[], object] | None = None
        self.on_stop: Callable[[], object] | None = None
        # Until the call is over: the receiver knows the call, and a cycle of the two would keep
        # values that are held for it until the garbage collector comes.
        self._receiver: Receiver | None = receiver
        self._loop = asyncio.get_running_loop()
        self._unread_bytes = 0
        self._code: StatusCode | None = None
        self._details = ""
        self._metadata: Metadata = ()

    def code(self) -> int | None:
        """Return the number of the status, ``None`` before the end."""
        if self._code is None:
            return None
        number: int = self._code.value[0]
        return number

    def details(self) -> str | None:
        """Return the text of the status."""
        return self._details

    def trailing_metadata(self) -> Metadata | None:
        """Return the trailers."""
        return self._metadata

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.route.path.rpartition("/")[2]

    # --- from the replica's loop ----------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether another message of a stream may be sent."""
        return self._unread_bytes < WINDOW_BYTES

    def send(self, message: bytes) -> None:
        """Send one message of a stream."""
        self._unread_bytes += len(message)
        self._post(MESSAGE, message)

    def end(
        self,
        code: StatusCode,
        details: str = "",
        metadata: Metadata = (),
        *,
        answer: bytes | None = None,
    ) -> None:
        """End the call; the first end counts."""
        if self._code is None:
            self._code, self._details, self._metadata = code, details, metadata
            self._post(DONE, answer)

    def taken(self, size_bytes: int) -> None:
        """Record that the reader has taken a message."""
        self._unread_bytes -= size_bytes
        if self.on_room is not None:
            self.on_room()

    def _post(self, kind: int, payload: bytes | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, kind, payload)
        except RuntimeError:  # The caller's loop has been closed; other threads may still wait.
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                receiver.abandon()

    # --- on the caller's loop ---------------------------------------------------------------

    def _deliver(self, kind: int, payload: bytes | None) -> None:
        receiver = self._receiver
        if receiver is not None:
            if kind == DONE:
                self.forget_receiver()
            receiver.on_event(kind, self, payload)

    def forget_receiver(self) -> None:
        """Send no event any more."""
        self._receiver = None


class LocalReservation:
    """A place in a local replica; given back also when it is dropped."""

    def __init__(self, replica: LocalReplica) -> None:
        self._replica: LocalReplica | None = replica
        self.replica_id: str = replica.context.replica_id
        self.node = ""

    def take(self) -> bool:
        """Make the place that of a call; ``False``: it was given back or taken before."""
        replica, self._replica = self._replica, None
        return replica is not None

    def release(self) -> None:
        """Give the place back, unless a call has taken it. Idempotent."""
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.post(replica.give_back)

    def __del__(self) -> None:
        self.release()


class LocalCaller:
    """Makes the calls of this process to one deployment, which may be replaced meanwhile.

    Args:
        key: The deployment.
        find: Returns what serves it now, ``None`` when nothing does.
    """

    def __init__(self, key: DeploymentKey, find: Callable[[], LocalReplica | None]) -> None:
        self._key = key
        self._find = find

    def prepare(self, route: Route) -> Route:
        """Return the route as it is: there is one replica, and it takes calls in order."""
        return route

    def start(
        self,
        route: Route,
        message: Message,
        timeout_s: float | None,
        receiver: Receiver,
        place: Reservation | Pinned | None = None,
        /,
    ) -> LocalCall:
        """Start one call on the running loop, where its events will arrive."""
        reservation = place if isinstance(place, LocalReservation) else None
        call = LocalCall(route, message, timeout_s, receiver, reservation)
        wanted = None if place is None else place.replica_id
        replica = self._find()
        if replica is None:
            call.end(StatusCode.UNAVAILABLE, "it does not run in this process (any more)")
        elif wanted not in {None, replica.context.replica_id}:
            call.end(StatusCode.UNAVAILABLE, f"there is no replica {wanted}")
        elif not replica.post(replica.accept, call):
            call.end(StatusCode.UNAVAILABLE, "local testing mode has been shut down")
        else:
            call.replica = replica
        return call

    def backpressure(self, _call: WireCall, /) -> tuple[int, float | None]:
        """Return what the options say; nobody knows when there is room."""
        replica = self._find()
        if replica is None:
            return BackPressure.status_code, None
        options = replica.loaded.options
        config = options.backpressure_config
        return options.queue_full_status, None if config is None else config.retry_after_s

    def cancel(self, call: WireCall, _loop: asyncio.AbstractEventLoop, /) -> None:
        """Reset a call, on its loop. No event follows."""
        assert isinstance(call, LocalCall)
        call.forget_receiver()
        if call.replica is not None:
            call.replica.post(call.replica.cancel, call)

    def taken(self, call: WireCall, size_bytes: int, _loop: asyncio.AbstractEventLoop, /) -> None:
        """Say that a message of a stream was taken, so that the next may come; any thread."""
        assert isinstance(call, LocalCall)
        if call.replica is not None:
            call.replica.post(call.taken, size_bytes)

    async def choose(self, _route: Route, timeout_s: float | None) -> LocalReservation:
        """Take a place, as a call would.

        Raises:
            RequestError: There was none in time.
        """
        replica = self._find()
        if replica is None:
            raise DeploymentUnavailable(f"{self._key} does not run in this process (any more)")
        return await asyncio.wrap_future(replica.reserve(timeout_s))

    def is_near(self) -> bool:
        """Return ``False``: arguments stay in this process, so they need no shared memory."""
        return False

    def serializer(self) -> str:
        """Return the codec that the deployment's options name."""
        replica = self._find()
        return "" if replica is None else replica.loaded.options.serializer

    def replicas(self) -> Sequence[tuple[str, str, Sequence[str]]]:
        """Return id, node and loaded models of the one replica."""
        replica = self._find()
        return [] if replica is None else [(replica.context.replica_id, "", replica.models())]

    def place_of(self, replica_id: str) -> tuple[str, str]:  # noqa: ARG002  # it is here
        """Return this machine's address."""
        return "127.0.0.1", ""


def joined(parts: Message) -> bytes:
    """Return the parts as one piece."""
    if isinstance(parts, bytes):
        return parts
    only = parts[0] if len(parts) == 1 else None
    return only if isinstance(only, bytes) else b"".join(parts)
