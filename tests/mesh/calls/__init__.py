"""What calls get through a whole mesh when something is wrong."""
