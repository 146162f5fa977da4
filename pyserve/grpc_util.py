"""What a method of a ``.proto`` gets, under the names that Ray Serve has for it."""

from collections.abc import AsyncIterator

from pyserve.aio import ServicerContext

# As Ray Serve calls them. A handler that takes a stream iterates over its messages.
RayServegRPCContext = ServicerContext
gRPCInputStream = AsyncIterator  # noqa: N816  # Its name there; generic in the message here too.

__all__ = ["RayServegRPCContext", "gRPCInputStream"]
