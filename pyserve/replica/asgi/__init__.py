"""ASGI applications in a replica: HTTP, WebSockets and lifespan on top of ``pyserve.aio``."""

from pyserve.replica.asgi.application import AsgiApplication, LifespanFailed

__all__ = ["AsgiApplication", "LifespanFailed"]
