"""Calls that are worth a look: those that failed, the slowest, and those that were asked for."""
