"""The mesh as JSON for people and tools, computed on request."""
