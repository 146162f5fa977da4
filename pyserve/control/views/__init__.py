"""What routers are told about the mesh, and the updates between its versions."""
