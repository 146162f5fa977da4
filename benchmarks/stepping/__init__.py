"""Continuous batching against batches that begin and end together, and one request at a time."""
