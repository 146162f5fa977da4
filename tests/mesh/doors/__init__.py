"""Clients of other protocols than gRPC at the door of a mesh."""
