"""The asyncio end of the ring between Python and the native I/O threads.

It decides when a loop drains its events and when it hands commands over: once per turn each.
It knows nothing of gRPC; ``pyserve.aio`` and ``pyserve.ingress`` give it receivers.
"""

import os

from pyserve import _router
from pyserve._router import DONE, MESSAGE, has_digits, keep_freed_memory
from pyserve.bridge._endpoint import (
    CallStarter,
    EventReceiver,
    LoopEndpoint,
    check_not_forked,
    endpoint_of,
    running_endpoint,
)

__all__ = [
    "DONE",
    "MESSAGE",
    "CallStarter",
    "EventReceiver",
    "LoopEndpoint",
    "check_not_forked",
    "endpoint_of",
    "has_digits",
    "keep_freed_memory",
    "running_endpoint",
]

# What user code forks (a data loader, multiprocessing) must not keep our listeners open.
os.register_at_fork(after_in_child=_router.close_listeners_after_fork)
