"""How processes of a mesh get started: replicas, and the mesh itself as a driver's child."""

from pyserve.launch.mesh import MeshProcess

__all__ = ["MeshProcess"]
