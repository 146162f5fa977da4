"""Continuous batching: requests join and leave a batch between its steps."""
