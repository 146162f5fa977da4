"""The replica that user code runs in, under the module name that Ray Serve uses."""

from pyserve.api.context import ReplicaContext
from pyserve.types import ReplicaRank

__all__ = ["ReplicaContext", "ReplicaRank"]
