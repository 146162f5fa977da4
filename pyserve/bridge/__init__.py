"""The asyncio end of the ring between Python and the native I/O threads.

It decides when a loop drains its events and when it hands commands over: once per turn each.
It knows nothing of gRPC; ``pyserve.aio`` and ``pyserve.ingress`` give it receivers.
"""

from pyserve.bridge._endpoint import (
    CallStarter,
    EventReceiver,
    LoopEndpoint,
    check_not_forked,
    running_endpoint,
)

__all__ = [
    "CallStarter",
    "EventReceiver",
    "LoopEndpoint",
    "check_not_forked",
    "running_endpoint",
]
