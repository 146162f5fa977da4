"""Calls of interest: those that failed, the slowest, and those that were to be kept."""
