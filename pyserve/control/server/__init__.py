"""Where the controller is reached: its sockets, its gRPC services, REST."""
