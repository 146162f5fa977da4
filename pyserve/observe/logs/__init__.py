"""What the processes of a mesh log: forms of lines, files, and the request that a line is about."""
