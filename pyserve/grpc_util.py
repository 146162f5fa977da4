"""The types of the arguments of ``.proto`` methods, under Ray Serve's names."""

from collections.abc import AsyncIterator

from pyserve.aio import ServicerContext

# As Ray Serve calls them. A handler that takes a stream iterates over its messages.
RayServegRPCContext = ServicerContext
gRPCInputStream = AsyncIterator  # noqa: N816  # Its name there; generic in the message here too.

__all__ = ["RayServegRPCContext", "gRPCInputStream"]
