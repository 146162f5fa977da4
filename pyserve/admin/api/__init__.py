"""What people and tools look at: the mesh as JSON, computed when somebody looks."""
