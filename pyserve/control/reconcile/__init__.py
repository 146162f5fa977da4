"""Decides the next actions that bring the mesh to its desired state."""
