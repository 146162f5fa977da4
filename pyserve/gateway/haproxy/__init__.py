"""A configuration of HAProxy for a mesh: written from the registry's views, and kept current."""
