"""What the mesh should be and what it is: plain data, and what reads it from requests."""
