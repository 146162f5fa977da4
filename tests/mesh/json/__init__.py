"""Messages as JSON at the door of a mesh, compared with protobuf's own conversion."""
