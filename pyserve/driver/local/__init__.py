"""Local testing mode: whole applications in this process.

Each deployment is a replica's own server in this process, at a Unix socket, and handles call it
over the router of every process. What is missing is the controller: ``mesh.py`` says in its place
where the replicas are.
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
