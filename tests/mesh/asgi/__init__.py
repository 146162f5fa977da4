"""Web applications in the replicas of a mesh."""
