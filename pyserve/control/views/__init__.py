"""The views of the mesh for routers, and the updates between their versions."""
