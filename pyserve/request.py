"""The request that user code is handling: its id, its model, its deadline, its child calls.

A context variable holds it, so that it follows tasks, nested calls and threads. The code that runs
user code sets the variable; handles, batches and multiplexed loaders read it. Most calls do not
need a ``Request``, which is costly to make, so the variable holds a ``Source`` that makes one on
first use.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Protocol

# Code of a request runs on threads while its cancellation and its end come on the loop. One lock
# for all requests, held for a microsecond; a finalizer may come in between, hence reentrant.
_CHANGING = threading.RLock()


class Child(Protocol):
    """A call that ends when the request that made it is cancelled."""

    def cancel(self) -> object:
        """Cancel the call; from the thread of its loop or any other."""


class Ending(Protocol):
    """A resource that is released when the root request of a call ends."""

    def end(self) -> object:
        """Give back what is held; from any thread, without raising or waiting."""


class Source(Protocol):
    """Makes the current request on demand."""

    def request(self) -> Request:
        """Return the same object every time."""

    def model_and_deadline(self) -> tuple[str, float | None]:
        """Return these two values, which a batch needs of each request, without making it."""

    def note_cost(self, cost: float) -> None:
        """Record what the request has cost so far, for the router that sent it."""


class Request:
    """One request while user code handles it.

    Attributes:
        request_id: Unique; the client's own ``x-request-id`` where it sent one.
        multiplexed_model_id: The model that was asked for, or ``""``.
        deadline: When the caller stops to wait, in seconds of ``time.monotonic``; ``None``: never.
        application, deployment, method: What is being called; ``""`` where there is no mesh.
        is_root: It came from outside the mesh, so what its calls hold is of no use after it.
    """

    __slots__ = (
        "__weakref__",
        "_children",
        "_end_callbacks",
        "_ends_with",
        "application",
        "deadline",
        "deployment",
        "is_cancelled",
        "is_ended",
        "is_root",
        "method",
        "multiplexed_model_id",
        "request_id",
    )

    def __init__(
        self,
        *,
        request_id: str = "",
        multiplexed_model_id: str = "",
        deadline: float | None = None,
        application: str = "",
        deployment: str = "",
        method: str = "",
        is_root: bool = False,
    ) -> None:
        self.request_id = request_id or new_request_id()
        self.multiplexed_model_id = multiplexed_model_id
        self.deadline = deadline
        self.application = application
        self.deployment = deployment
        self.method = method
        self.is_cancelled = False
        self.is_ended = False
        self.is_root = is_root
        self._children: weakref.WeakSet[Child] | None = None
        self._end_callbacks: list[Callable[[], object]] | None = None
        self._ends_with: weakref.WeakSet[Ending] | None = None

    def __del__(self) -> None:
        # Where nobody said that the request ended, its last reference did.
        if self._end_callbacks:
            self.end()

    def request(self) -> Request:
        """Return itself: a request is its own source."""
        return self

    def model_and_deadline(self) -> tuple[str, float | None]:
        """Return ``multiplexed_model_id`` and ``deadline``."""
        return self.multiplexed_model_id, self.deadline

    def note_cost(self, cost: float) -> None:
        """Do nothing: no router knows this request, or its source notes it."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, never below 0; ``None`` without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def add_child(self, child: Child) -> None:
        """Cancel ``child`` when this request is cancelled, at once if it is already."""
        with _CHANGING:
            if not self.is_cancelled:
                if self._children is None:
                    self._children = weakref.WeakSet()
                self._children.add(child)
                return
        child.cancel()

    def cancel(self) -> None:
        """Record that nobody waits for the answer any more, and cancel the child calls."""
        with _CHANGING:
            self.is_cancelled = True
            children, self._children = tuple(self._children or ()), None
        for child in children:
            child.cancel()

    def add_end_callback(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when user code is done with this request, at once if it is already.

        It is called once, in any thread, and must neither raise nor wait.
        """
        with _CHANGING:
            if not self.is_ended:
                if self._end_callbacks is None:
                    self._end_callbacks = []
                self._end_callbacks.append(callback)
                return
        callback()

    def add_ending(self, ending: Ending) -> None:
        """End ``ending`` with this request, if it still exists then.

        After the end of the request this has no effect: work that a handler has started and not
        waited for goes on, and still needs its resources.
        """
        with _CHANGING:
            if not self.is_ended:
                if self._ends_with is None:
                    self._ends_with = weakref.WeakSet()
                self._ends_with.add(ending)

    def end(self) -> None:
        """Record that user code is done: what was kept for the request is given back.

        Whoever runs user code calls it, however the code ended; for a stream after its last
        item, for a batch's own request after the batch. Calling it again does nothing.
        """
        with _CHANGING:
            self.is_ended = True
            callbacks, self._end_callbacks = self._end_callbacks, None
            endings, self._ends_with = tuple(self._ends_with or ()), None
        for callback in callbacks or ():
            callback()
        for ending in endings:
            ending.end()

    @classmethod
    def of_batch(cls, members: Iterable[Request]) -> Request:
        """Return the request of a batch: one model, the latest deadline of its members.

        Its id is that of its members if they have one in common, else a new one.

        The code that runs the batch cancels it when every member is cancelled.
        """
        found = list(members)
        deadlines = [member.deadline for member in found]
        latest = None if None in deadlines else max((d for d in deadlines if d), default=None)
        first = found[0] if found else cls()
        # Values that the batch's calls hold must not be freed with one of several requests.
        is_of_one = all(member.request_id == first.request_id for member in found)
        return cls(
            request_id=first.request_id if is_of_one else "",
            multiplexed_model_id=first.multiplexed_model_id,
            deadline=latest,
            application=first.application,
            deployment=first.deployment,
            method=first.method,
        )


CURRENT: ContextVar[Source | None] = ContextVar("pyserve_request", default=None)
"""Set by the code that runs user code; read by ``current_request``."""
LOCAL_REPLICA: ContextVar[Any] = ContextVar("pyserve_replica", default=None)
"""In local testing mode several replicas share a process: the one whose code this is."""


def current_request() -> Request | None:
    """Return the request that this code handles, ``None`` outside of one."""
    source = CURRENT.get()
    return None if source is None else source.request()


def get_multiplexed_model_id() -> str:
    """Return the model id of the current request or batch, ``""`` when it names none.

    Works in handlers, in what they call, in batched functions, streams and loaders.
    """
    request = current_request()
    return "" if request is None else request.multiplexed_model_id


def get_request_context() -> Request:
    """Return the current request; outside of one, an empty request with a new id."""
    return current_request() or Request()


def new_request_id() -> str:
    """Return 16 random hex digits."""
    return os.urandom(8).hex()
