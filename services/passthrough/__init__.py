"""Passes requests to an engine that batches by itself."""
