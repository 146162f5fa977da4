"""Stores a controller's state, and lets the next controller continue from it."""
