"""Calls of deployments from Python: handles, responses, streams, and how they are framed."""
