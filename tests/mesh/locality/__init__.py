"""Replicas on several nodes and in several zones, in meshes on this machine."""
