"""Hostile clients: what they send, and what it costs their neighbours."""
