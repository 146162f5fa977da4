"""How many threads of a replica run user code at once."""

from __future__ import annotations

import sys

from pyserve.api.code import Code
from pyserve.api.ingress import ingress_of

# Threads are made when calls come and none is idle. The gate admits max_ongoing_requests calls, so
# there are never more threads than that, also when the limit changes; this bounds them for limits
# meant for coroutines (arbitrary).
HANDLER_THREADS_MAX = 1000


class EndpointThreads:
    """The threads in which FastAPI and Starlette run ``def`` endpoints: anyio's default limiter.

    As many as the replica takes requests, and no fewer than anyio gives by itself, for background
    tasks, files and dependencies take threads too. An application that sets the limiter, in its
    constructor or its lifespan for example, keeps what it has set.

    Made in a task of the replica's loop, and used on that loop.

    Args:
        limit: How many requests the replica takes at once.
    """

    def __init__(self, limit: int) -> None:
        # Here, because it takes time that replicas without web applications need not wait for.
        from anyio.to_thread import current_default_thread_limiter

        self._limiter = current_default_thread_limiter()
        self._fewest = self._given = self._limiter.total_tokens
        self.follow(limit)

    def follow(self, limit: int) -> None:
        """Follow another limit of requests; those that wait for a thread get it now."""
        if self._limiter.total_tokens != self._given:
            return  # The application has chosen by itself.
        self._given = max(self._fewest, min(limit, HANDLER_THREADS_MAX))
        self._limiter.total_tokens = self._given


def threads_for(target: Code, limit: int) -> EndpointThreads | None:
    """Bound anyio's threads if they are used: before the constructor, which may know better.

    Args:
        target: The class or function that the replica runs.
        limit: How many requests it takes at once.
    """
    # Streams of plain handlers use them too.
    if ingress_of(target) is None and "anyio" not in sys.modules:
        return None
    return EndpointThreads(limit)
