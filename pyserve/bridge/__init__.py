"""The asyncio end of the ring between Python and the native I/O threads.

It decides when a loop drains its events and when it hands commands over: once per turn each.
It knows nothing of gRPC; ``pyserve.aio`` and ``pyserve.routing`` give it receivers. It alone
imports the native extension: ``rust`` has what those two and ``pyserve.gateway`` use of it, this
module what all may.
"""

from pyserve._router import (
    DONE,
    MESSAGE,
    OpenFile,
    has_digits,
    http_status,
    keep_freed_memory,
    may_have_infinity,
    open_file,
    raise_descriptor_limit,
)
from pyserve.bridge._endpoint import (
    CallStarter,
    EventReceiver,
    LoopEndpoint,
    LoopProbe,
    check_not_forked,
    endpoint_of,
    running_endpoint,
)
from pyserve.bridge._forks import end_if_forked, keep_from_forks

__all__ = [
    "DONE",
    "MESSAGE",
    "CallStarter",
    "EventReceiver",
    "LoopEndpoint",
    "LoopProbe",
    "OpenFile",
    "check_not_forked",
    "end_if_forked",
    "endpoint_of",
    "has_digits",
    "http_status",
    "keep_freed_memory",
    "keep_from_forks",
    "may_have_infinity",
    "open_file",
    "raise_descriptor_limit",
    "running_endpoint",
]
