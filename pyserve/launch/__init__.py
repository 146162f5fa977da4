"""How processes of a mesh get started: replicas, and the mesh itself as a driver's child."""

from pyserve.config.capabilities import Capabilities
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.replicas.launching import (
    CountsStrays,
    Ended,
    Event,
    Events,
    Gang,
    LastingLauncher,
    Launcher,
    Placed,
    ReplicaOrder,
    Waiting,
)
from pyserve.launch.engines import make_launcher, notices_of
from pyserve.launch.environments import Environments
from pyserve.launch.lasting import LastingLocalLauncher
from pyserve.launch.local import LocalLauncher
from pyserve.launch.mesh import MeshProcess, can_find_again, open_home, report
from pyserve.launch.process import describe_end
from pyserve.launch.site import Site
from pyserve.launch.strays import has_members

__all__ = [
    "Capabilities",
    "CountsStrays",
    "Ended",
    "Environments",
    "Event",
    "Events",
    "Gang",
    "LastingLauncher",
    "LastingLocalLauncher",
    "Launcher",
    "LocalLauncher",
    "MeshProcess",
    "Placed",
    "ReplicaOrder",
    "Room",
    "Site",
    "Waiting",
    "can_find_again",
    "describe_end",
    "has_members",
    "make_launcher",
    "notices_of",
    "open_home",
    "report",
]
