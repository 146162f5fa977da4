"""Handles under the module name that Ray Serve uses."""

from pyserve.api.handle import DeploymentHandle

__all__ = ["DeploymentHandle"]
