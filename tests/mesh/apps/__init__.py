"""Applications that the mesh tests run: small ones, and ones that cannot be run."""
