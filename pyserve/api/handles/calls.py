"""The interface between handles and the way to replicas.

``pyserve.routing.native_caller`` implements it over the native router, which this package does not
know. It takes framed messages (``framing.py``) and answers with events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyserve.types import DeploymentKey, ReplicaId

Metadata = tuple[tuple[str, str | bytes], ...]
Message = bytes | list[bytes | bytearray | memoryview]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Everything about a call that does not change from one call of a handle to the next.

    Attributes:
        key: Whom to call.
        path: ``/{application}.{Deployment}/{method}``.
        codec: The name of the request's codec, which is the content-subtype.
        streaming: The answer is a stream.
        model_id: The multiplexed model, or ``""``.
        session_id: Equal ones go to the same replica where the policy looks at it; or ``""``.
        cache_keys: The cache entries that the call would like to find, of a chain in its order.
        priority: Higher ones leave a queue first, from -128 to 127.
        cost: What it costs its deployment; ``None``: as calls like it.
        caller: Which handle calls; the queue is fair between handles.
        idempotent: It may be sent again after it has started.
        locality: Whether replicas on this node come first, and those in this zone; ``None``: as
            deployed.
        native: What ``Caller.prepare`` has made of it.
    """

    key: DeploymentKey
    path: str
    codec: str
    streaming: bool
    model_id: str = ""
    session_id: str = ""
    cache_keys: tuple[bytes | str | int, ...] = ()
    priority: int = 0
    cost: float | None = None
    caller: int = 0
    idempotent: bool = False
    locality: tuple[bool, bool] | None = None
    native: object = None


class WireCall(Protocol):
    """One call, as seen by the code that started it. Its status is known after DONE."""

    def code(self) -> int | None:
        """Return the number of the gRPC status."""

    def details(self) -> str | None:
        """Return the text of the status."""

    def trailing_metadata(self) -> Metadata | None:
        """Return the trailers."""


class Receiver(Protocol):
    """Takes the events of one call; always on the loop that started it.

    ``kind`` is a constant of ``pyserve.bridge``: ``MESSAGE`` brings one answer of a stream,
    ``DONE`` ends the call, with the answer of a unary call that went well, else ``None``.
    """

    def on_event(self, kind: int, subject: object, payload: object, /) -> None:
        """Take one event; must neither block nor raise."""

    def abandon(self) -> None:
        """The loop closes: no event will come."""


class Reservation(Protocol):
    """A place at one replica that was chosen before the call."""

    @property
    def replica_id(self) -> str:
        """Whose place it is."""

    @property
    def node(self) -> str:
        """Where that replica runs."""

    def release(self) -> None:
        """Give it back, unless a call has taken it. Idempotent."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A call that goes to one replica only, whatever the load of that replica."""

    replica_id: ReplicaId


class Caller(Protocol):
    """Makes the calls of this process to one deployment. Cheap to look up, for any thread."""

    def prepare(self, route: Route) -> Route:
        """Return the route as ``start`` and ``choose`` want it; once for all calls of a handle."""

    def start(
        self,
        route: Route,
        message: Message,
        timeout_s: float | None,
        receiver: Receiver,
        place: Reservation | Pinned | None = None,
        /,
    ) -> WireCall:
        """Start one call on the running loop, where its events will arrive.

        Args:
            route: What is called.
            message: The framed request.
            timeout_s: Seconds until DEADLINE_EXCEEDED; ``None``: no deadline.
            receiver: Takes the events.
            place: Where it has to go; ``None``: the router picks.
        """

    def cancel(self, call: WireCall, loop: asyncio.AbstractEventLoop, /) -> None:
        """Reset a call, on its loop. No event follows."""

    def taken(self, call: WireCall, size_bytes: int, loop: asyncio.AbstractEventLoop, /) -> None:
        """Say that an answer of a stream was consumed, so that the next may come; any thread."""

    async def choose(self, route: Route, timeout_s: float | None) -> Reservation:
        """Take a place at a replica, as a call would.

        Raises:
            RequestError: There was none in time.
        """

    def backpressure(self, call: WireCall, /) -> tuple[int, float | None]:
        """Return the HTTP status for a call that was refused, and seconds until there is room."""

    def is_near(self) -> bool:
        """Tell whether every replica runs on this machine and shares its memory."""

    def serializer(self) -> str:
        """Return the codec that the deployment's options name; ``""`` while it is unknown."""

    def replicas(self) -> Sequence[tuple[str, str, Sequence[str]]]:
        """Return id, node and loaded models of each replica that serves."""

    def place_of(self, replica_id: str) -> tuple[str, str]:
        """Return the address of a replica's machine and its zone; "" for each that is unknown."""
