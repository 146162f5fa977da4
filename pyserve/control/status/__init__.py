"""How the mesh is, for people and programs that ask."""
