"""Replicas in actors of a Ray cluster of three nodes and two zones, all on this machine."""
