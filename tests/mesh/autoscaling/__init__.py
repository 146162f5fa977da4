"""Code as users of Ray Serve have written it, in a mesh and in local testing mode."""
