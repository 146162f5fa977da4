"""Handles under the module name that Ray Serve uses."""

from pyserve.api.handles.choosing import BroadcastResponse, ReplicaSelection
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.api.handles.response import DeploymentResponse
from pyserve.api.handles.stream import DeploymentResponseGenerator

# As Ray Serve calls it.
DeploymentBroadcastResponse = BroadcastResponse

__all__ = [
    "BroadcastResponse",
    "DeploymentBroadcastResponse",
    "DeploymentHandle",
    "DeploymentResponse",
    "DeploymentResponseGenerator",
    "ReplicaSelection",
]
