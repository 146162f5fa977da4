"""The replica that user code runs in, under the module name that Ray Serve uses."""

from pyserve.api.context import GangContext, ReplicaContext
from pyserve.types import ReplicaRank

__all__ = ["GangContext", "ReplicaContext", "ReplicaRank"]
