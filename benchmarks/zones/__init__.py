"""Machines of several zones on one machine: network namespaces, and what a mesh does in them."""
