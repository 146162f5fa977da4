"""Generated from the ``.proto`` of the same path; Ray Serve's names, our text."""
