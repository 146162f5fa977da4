"""Engines of other projects as deployments. Each module imports its package when it is used."""
