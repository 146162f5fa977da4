"""What to do next so that the mesh becomes what it should be."""
