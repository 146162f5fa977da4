"""The status of the mesh, for people and programs."""
