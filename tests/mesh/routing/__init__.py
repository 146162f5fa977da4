"""Routing as deployments, calls and clients ask for it, through real processes."""
