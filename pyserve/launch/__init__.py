"""How processes of a mesh get started: replicas, and the mesh itself as a driver's child."""

from pyserve.control.replicas.launching import Launcher, ReplicaOrder
from pyserve.launch.environments import Environments
from pyserve.launch.lasting import LastingLocalLauncher
from pyserve.launch.local import LocalLauncher
from pyserve.launch.mesh import MeshProcess

__all__ = [
    "Environments",
    "LastingLocalLauncher",
    "Launcher",
    "LocalLauncher",
    "MeshProcess",
    "ReplicaOrder",
]
