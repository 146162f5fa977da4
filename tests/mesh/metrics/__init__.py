"""What meshes show of themselves, and what it takes to see it."""
