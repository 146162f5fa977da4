"""Local testing mode: whole applications in this process, without processes and sockets.

Calls go through the same handles, frames, codecs and dispatcher as in a mesh; what is missing
between them is the router, the wire, and a second replica.
"""

from pyserve.driver.local.mesh import LocalApplication, LocalMesh
from pyserve.driver.local.session import (
    LocalRuntime,
    end_local,
    find_local,
    local_status,
    open_local,
)

__all__ = [
    "LocalApplication",
    "LocalMesh",
    "LocalRuntime",
    "end_local",
    "find_local",
    "local_status",
    "open_local",
]
