"""The interoperability cases of gRPC: one client and one service, on every pair of ends."""
