"""The controller's server: its sockets, its gRPC services, and REST."""
