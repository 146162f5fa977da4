"""Handles under the module name that Ray Serve uses."""

from pyserve.api.handles.handle import DeploymentHandle
from pyserve.api.handles.response import DeploymentResponse
from pyserve.api.handles.stream import DeploymentResponseGenerator

__all__ = ["DeploymentHandle", "DeploymentResponse", "DeploymentResponseGenerator"]
